update flush set n = n + 1
