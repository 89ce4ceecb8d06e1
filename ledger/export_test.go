package ledger

// Held returns how many conversations the ledger keeps a copy of.
func Held(l *Ledger) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.convs)
}
