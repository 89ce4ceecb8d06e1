package redisledger

import (
	"fmt"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/ledger"
)

// What scripts answer. A server that answers something else is not one that ran them.

func list(answer any, length int) ([]any, error) {
	items, ok := answer.([]any)
	if !ok || length >= 0 && len(items) != length {
		return nil, fmt.Errorf("the server answered %T where a list was expected", answer)
	}
	return items, nil
}

func text(answer any) (s string, found bool, err error) {
	switch answer := answer.(type) {
	case nil:
		return "", false, nil
	case string:
		return answer, true, nil
	}
	return "", false, fmt.Errorf("the server answered %T where a string was expected", answer)
}

func number(answer any) (int64, error) {
	n, ok := answer.(int64)
	if !ok {
		return 0, fmt.Errorf("the server answered %T where a number was expected", answer)
	}
	return n, nil
}

// pairs calls each for every two strings of a list.
func pairs(answer any, each func(a, b string) error) error {
	items, err := list(answer, -1)
	if err != nil {
		return err
	}
	for i := 0; i+1 < len(items); i += 2 {
		a, _, err := text(items[i])
		if err != nil {
			return err
		}
		b, _, err := text(items[i+1])
		if err != nil {
			return err
		}
		if err := each(a, b); err != nil {
			return err
		}
	}
	return nil
}

// snapshotOf reads what snapshot in common.lua answers to q.
func snapshotOf(answer any, q ledger.Query) (ledger.Snapshot, error) {
	parts, err := list(answer, 9)
	if err != nil {
		return ledger.Snapshot{}, err
	}
	var snap ledger.Snapshot
	for _, read := range []func() error{
		func() error { return readHead(&snap, parts) },
		func() error { return readRows(&snap, parts[3], q.Keys) },
		func() error { return readLeases(&snap, parts[4]) },
		func() (err error) { snap.Tail, err = listed(parts[5]); return err },
		func() (err error) { snap.Open, err = listed(parts[6]); return err },
		func() error { return readHome(&snap, parts[8]) },
	} {
		if err := read(); err != nil {
			return ledger.Snapshot{}, err
		}
	}
	return snap, nil
}

func readHead(snap *ledger.Snapshot, parts []any) error {
	now, err := number(parts[0])
	if err != nil {
		return err
	}
	count, err := number(parts[7])
	if err != nil {
		return err
	}
	snap.Now, snap.OpenCount = fence.Millis(now), int(count)
	state, found, err := text(parts[1])
	if err != nil || !found {
		return err
	}
	body, _, err := text(parts[2])
	if err != nil {
		return err
	}
	due, tag, err := stateOf(state)
	snap.Tag, snap.Head = tag, ledger.NewRow("", fence.Index{Due: due}, []byte(body))
	return err
}

func readRows(snap *ledger.Snapshot, answer any, keys []string) error {
	values, err := list(answer, len(keys))
	if err != nil {
		return err
	}
	for i, key := range keys {
		value, found, err := text(values[i])
		if err != nil {
			return err
		}
		if !found {
			continue
		}
		row, err := rowOf(key, value)
		if err != nil {
			return err
		}
		snap.Rows = append(snap.Rows, row)
	}
	return nil
}

func readLeases(snap *ledger.Snapshot, answer any) error {
	return pairs(answer, func(field, ends string) error {
		run, nonce, err := leaseOf(field)
		if err != nil {
			return err
		}
		until, err := millis(ends)
		snap.Leases = append(snap.Leases, ledger.Lease{Run: run, Nonce: nonce, Until: until})
		return err
	})
}

// listed reads a list of keys and values in turn.
func listed(answer any) ([]ledger.Row, error) {
	var list []ledger.Row
	err := pairs(answer, func(key, value string) error {
		row, err := rowOf(key, value)
		list = append(list, row)
		return err
	})
	return list, err
}

func readHome(snap *ledger.Snapshot, answer any) (err error) {
	entry, found, err := text(answer)
	if err == nil && found {
		snap.Home, err = homeOf(entry)
	}
	return err
}
