"""Residency arithmetic: what a rank affords and what a group agrees on.

Pure: standard library only, no clock, no I/O. The one package that both services' cores import.
"""
