package redisledger

import (
	"context"
	"errors"
	"slices"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/ledger"
)

// Apply implements ledger.Store.
//
// The client sends a script again when its answer was lost. Each call has a nonce that stands with
// what it wrote, so a repetition is told that it was applied; a second call with the very same
// change is not, and neither is a repetition after which somebody else wrote: the ledger finds
// its own claim then (rule S5.7).
func (s *Store) Apply(ctx context.Context, conversation string, w ledger.Write) (ledger.Result, error) {
	return await(ctx, s, "apply", func() (ledger.Result, error) {
		if err := s.reassure(ctx, conversation); err != nil {
			return ledger.Result{}, err
		}
		if w.Drop {
			w.Absent, w.Delete, w.Put, w.Leases, w.Home, w.Forget = nil, nil, nil, nil, nil, nil
		}
		nonce := s.seam.NewID()
		if s.together || w.Home == nil && len(w.Forget) == 0 && w.Want.Run == "" {
			return s.apply(ctx, conversation, w, nonce)
		}
		return s.applyApart(ctx, conversation, w, nonce)
	})
}

// apply is one script. Where the directory is elsewhere it leaves that alone.
func (s *Store) apply(ctx context.Context, conversation string, w ledger.Write, nonce string) (ledger.Result, error) {
	keys := s.conversationKeys(conversation)
	kind, directory := byte(' '), []any(nil)
	if s.together && (w.Home != nil || len(w.Forget) > 0 || w.Want.Run != "") {
		kind = 'e'
		keys, directory = s.directory(keys, conversation, w, nonce)
	}
	if w.Drop {
		kind = 'd'
	}
	head, err := w.Head.Body()
	if err != nil {
		return ledger.Result{}, err
	}
	put, absent := freshFirst(w)
	counts := []int{len(w.Want.Keys), len(absent), len(w.Delete), len(put), len(w.Absent) - len(absent), len(w.Leases)}
	first, err := firstArgument(kind, counts, s.now())
	if err != nil {
		return ledger.Result{}, err
	}
	args := make([]any, 0, 14+len(w.Want.Keys)+len(absent)+len(w.Delete)+2*len(put)+2*len(w.Leases))
	args = append(args, first, w.Tag, ordered(conversation))
	args = appendQuestion(args, w.Want)
	for _, key := range absent {
		args = append(args, "r"+key)
	}
	for _, key := range w.Delete {
		args = append(args, "r"+key)
	}
	args = append(args, "t", stateValue(w.Head.Index.Due, nonce, w.NewTag), "h", head)
	for i := range put {
		value, err := rowValue(put[i])
		if err != nil {
			return ledger.Result{}, err
		}
		args = append(args, "r"+put[i].Key, value)
	}
	for _, l := range w.Leases {
		args = append(args, leaseField(l.Run, l.Nonce), int64(fence.MillisOf(l.For)))
	}
	args = append(args, directory...)
	answer, err := s.durablyIf(ctx, w.Durable, applyScript, keys, args...)
	if err != nil {
		if w.Durable && s.waits() {
			s.doubt(conversation)
		}
		return ledger.Result{}, err
	}
	result, err := resultOf(answer, w.Want)
	if w.Durable && s.waits() && err == nil && !result.Applied {
		// It may be a repetition that came too late to be known as one, on a connection whose WAIT
		// had nothing to wait for. What the ledger finds of its own must be waited for first.
		s.doubt(conversation)
		result.Current = nil
	}
	return result, err
}

// freshFirst puts rows that must be new before the others, and returns the keys that must be absent and
// are not among them.
func freshFirst(w ledger.Write) (put []ledger.Row, absent []string) {
	if len(w.Absent) == 0 {
		return w.Put, nil
	}
	if len(w.Absent) == 1 && len(w.Put) == 1 && w.Absent[0] == w.Put[0].Key { // a claim
		return w.Put, nil
	}
	must := make(map[string]bool, len(w.Absent))
	for _, key := range w.Absent {
		must[key] = true
	}
	put = make([]ledger.Row, 0, len(w.Put))
	for _, row := range w.Put {
		if must[row.Key] {
			put = append(put, row)
			delete(must, row.Key)
		}
	}
	for _, row := range w.Put {
		if !slices.Contains(w.Absent, row.Key) {
			put = append(put, row)
		}
	}
	for _, key := range w.Absent {
		if must[key] {
			absent = append(absent, key)
		}
	}
	return put, absent
}

// firstArgument packs what every change tells.
func firstArgument(kind byte, counts []int, now string) ([]byte, error) {
	b := append(make([]byte, 0, 1+3*len(counts)+len(now)), kind)
	for _, n := range counts {
		if n >= 1<<24 {
			return nil, errors.New("a change of more than 16 million rows")
		}
		b = append(b, byte(n>>16), byte(n>>8), byte(n))
	}
	return append(b, now...), nil
}

// directory adds the keys of directory entries, and returns what apply.lua is to do with them.
func (s *Store) directory(keys []string, conversation string, w ledger.Write, nonce string) ([]string, []any) {
	entry, was, run, tells := "", "", "", ""
	if w.Home != nil {
		run, entry, was = w.Home.Run, entryValue(settled, nonce, conversation), wasOf(w.Home.Was)
		keys = append(keys, s.entryKey(run), s.indexKey(bucketOf(run)))
	}
	for _, run := range w.Forget {
		keys = append(keys, s.entryKey(run))
	}
	if w.Want.Run != "" {
		tells = "1"
		keys = append(keys, s.entryKey(w.Want.Run))
	}
	return keys, []any{conversation, entry, was, run, len(w.Forget), tells}
}

func resultOf(answer any, want ledger.Query) (ledger.Result, error) {
	if now, ok := answer.(int64); ok {
		return ledger.Result{Applied: true, Now: fence.Millis(now)}, nil
	}
	snap, err := snapshotOf(answer, want)
	if err != nil {
		return ledger.Result{}, err
	}
	return ledger.Result{Now: snap.Now, Current: &snap}, nil
}
