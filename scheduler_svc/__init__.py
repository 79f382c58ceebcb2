"""The scheduler of a group: servicer -> driver -> core. The authority on what starts (rule C1)."""
