"""The cache service of one rank: servicer -> driver | pool -> core. The authority on what is held (C1)."""
