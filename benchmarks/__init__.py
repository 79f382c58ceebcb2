"""Speed, as ratios within one run: these machines are shared, absolute times are not compared."""
