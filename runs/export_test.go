package runs

// Live returns how many runs a keeper renews.
func Live(k *Keeper) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.live)
}
