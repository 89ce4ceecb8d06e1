package ledgertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/internal/sabotage"
	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/ledger/memledger"
)

// broken is a memory ledger with one mistake: whatever a field replaces is done wrong.
type broken struct {
	*memledger.Store
	apply  func(ctx context.Context, conversation string, w ledger.Write) (ledger.Result, error)
	load   func(ctx context.Context, conversation string, q ledger.Query) (ledger.Snapshot, error)
	renew  func(ctx context.Context, leases []ledger.LeaseKey, d time.Duration) ([]ledger.Renewed, error)
	bury   func(ctx context.Context, run string, tombstone []byte, due fence.Millis) (bool, error)
	exhume func(ctx context.Context, limit int) (int, error)
	scan   func(ctx context.Context, q ledger.Scan) ([]ledger.Found, error)
}

func (s *broken) Apply(ctx context.Context, conversation string, w ledger.Write) (ledger.Result, error) {
	if s.apply != nil {
		return s.apply(ctx, conversation, w)
	}
	return s.Store.Apply(ctx, conversation, w)
}

func (s *broken) Load(ctx context.Context, conversation string, q ledger.Query) (ledger.Snapshot, error) {
	if s.load != nil {
		return s.load(ctx, conversation, q)
	}
	return s.Store.Load(ctx, conversation, q)
}

func (s *broken) Renew(ctx context.Context, leases []ledger.LeaseKey, d time.Duration) ([]ledger.Renewed, error) {
	if s.renew != nil {
		return s.renew(ctx, leases, d)
	}
	return s.Store.Renew(ctx, leases, d)
}

func (s *broken) Bury(ctx context.Context, run string, tombstone []byte, due fence.Millis) (bool, error) {
	if s.bury != nil {
		return s.bury(ctx, run, tombstone, due)
	}
	return s.Store.Bury(ctx, run, tombstone, due)
}

func (s *broken) Exhume(ctx context.Context, limit int) (int, error) {
	if s.exhume != nil {
		return s.exhume(ctx, limit)
	}
	return s.Store.Exhume(ctx, limit)
}

func (s *broken) Scan(ctx context.Context, q ledger.Scan) ([]ledger.Found, error) {
	if s.scan != nil {
		return s.scan(ctx, q)
	}
	return s.Store.Scan(ctx, q)
}

// writing returns a store whose changes pass through spoil on their way in.
func writing(spoil func(s *memledger.Store, conversation string, w *ledger.Write)) func() ledger.Store {
	return func() ledger.Store {
		s := &broken{Store: memledger.New()}
		s.apply = func(ctx context.Context, conversation string, w ledger.Write) (ledger.Result, error) {
			spoil(s.Store, conversation, &w)
			return s.Store.Apply(ctx, conversation, w)
		}
		return s
	}
}

// bodies returns a store that changes the bytes of rows.
func bodies(spoil func([]byte) []byte) func() ledger.Store {
	return writing(func(_ *memledger.Store, _ string, w *ledger.Write) {
		w.Put = slices.Clone(w.Put)
		for i, r := range w.Put {
			body, _ := r.Body()
			w.Put[i] = ledger.NewRow(r.Key, r.Index, spoil(body))
		}
	})
}

// scanning returns a store whose scans are changed.
func scanning(spoil func(s *memledger.Store, q *ledger.Scan) func([]ledger.Found) []ledger.Found) func() ledger.Store {
	return func() ledger.Store {
		s := &broken{Store: memledger.New()}
		s.scan = func(ctx context.Context, q ledger.Scan) ([]ledger.Found, error) {
			after := spoil(s.Store, &q)
			found, err := s.Store.Scan(ctx, q)
			if after != nil {
				found = after(found)
			}
			return found, err
		}
		return s
	}
}

func current(s *memledger.Store, conversation string) ledger.Snapshot {
	snap, err := s.Load(context.Background(), conversation, ledger.Query{})
	if err != nil {
		panic(err)
	}
	return snap
}

// force writes w whatever the conversation is by now.
func force(ctx context.Context, s *memledger.Store, conversation string, w ledger.Write) (ledger.Result, error) {
	for {
		w.Tag, w.Absent = current(s, conversation).Tag, nil
		if w.Home != nil {
			home := *w.Home
			home.Was, _ = s.FindRun(ctx, home.Run)
			w.Home = &home
		}
		if r, err := s.Apply(ctx, conversation, w); err != nil || r.Applied {
			return r, err
		}
	}
}

// mistakes are stores that work most of the time. Each names the test that must miss it.
var mistakes = map[string]struct {
	caught string
	open   func() ledger.Store
}{
	"reads, then writes": {"store/of changes decided on one tag, exactly one is applied", func() ledger.Store {
		s := &broken{Store: memledger.New()}
		s.apply = func(ctx context.Context, conversation string, w ledger.Write) (ledger.Result, error) {
			if snap := current(s.Store, conversation); snap.Tag != w.Tag {
				return ledger.Result{Now: snap.Now}, nil
			}
			for range 20 {
				runtime.Gosched()
			}
			return force(ctx, s.Store, conversation, w)
		}
		return s
	}},
	"forgets the tag": {"store/refused when the tag is another", writing(func(s *memledger.Store, c string, w *ledger.Write) {
		w.Tag = current(s, c).Tag
	})},
	"forgets the tag of a new conversation": {"store/of those who would make a conversation, exactly one does", writing(func(s *memledger.Store, c string, w *ledger.Write) {
		if w.Tag == "" {
			w.Tag = current(s, c).Tag
		}
	})},
	"compares tags without case": {"store/refused when the tag is another", writing(func(s *memledger.Store, c string, w *ledger.Write) {
		if tag := current(s, c).Tag; strings.EqualFold(tag, w.Tag) {
			w.Tag = tag
		}
	})},
	"has a counter as tag": {"store/the tag is the one that was written", func() ledger.Store {
		n := 0
		return writing(func(_ *memledger.Store, _ string, w *ledger.Write) {
			n++
			w.NewTag = fmt.Sprint(n)
		})()
	}},
	"forgets absent keys":     {"store/refused when an absent key has a row", writing(func(_ *memledger.Store, _ string, w *ledger.Write) { w.Absent = nil })},
	"looks at one absent key": {"store/refused when an absent key has a row", writing(func(_ *memledger.Store, _ string, w *ledger.Write) { w.Absent = w.Absent[:min(1, len(w.Absent))] })},
	"forgets where runs live": {"store/refused when the run lives elsewhere", writing(func(s *memledger.Store, _ string, w *ledger.Write) { believe(s, w) })},
	"takes a tombstone for no entry": {"store/refused when the run lives elsewhere", writing(func(s *memledger.Store, _ string, w *ledger.Write) {
		if w.Home != nil {
			if is, _ := s.FindRun(context.Background(), w.Home.Run); is.Found && is.Conversation == "" {
				believe(s, w)
			}
		}
	})},
	"writes rows before it looks": {"store/a refusal writes nothing and may show the present", func() ledger.Store {
		s := &broken{Store: memledger.New()}
		s.apply = func(ctx context.Context, conversation string, w ledger.Write) (ledger.Result, error) {
			if snap := current(s.Store, conversation); snap.Tag != "" && !w.Drop {
				if _, err := s.Store.Apply(ctx, conversation, ledger.Write{Tag: snap.Tag, NewTag: snap.Tag, Head: snap.Head, Put: w.Put}); err != nil {
					return ledger.Result{}, err
				}
				w.Absent = nil
			}
			return s.Store.Apply(ctx, conversation, w)
		}
		return s
	}},
	"shows a stale present": {"store/a refusal writes nothing and may show the present", func() ledger.Store {
		s := &broken{Store: memledger.New()}
		var old ledger.Snapshot
		s.apply = func(ctx context.Context, conversation string, w ledger.Write) (ledger.Result, error) {
			snap, _ := s.Store.Load(ctx, conversation, w.Want)
			r, err := s.Store.Apply(ctx, conversation, w)
			if r.Applied {
				old = snap
			} else if r.Current != nil {
				r.Current = &old
			}
			return r, err
		}
		return s
	}},
	"mixes two moments": {"store/a reader sees one state", func() ledger.Store {
		s := &broken{Store: memledger.New()}
		s.load = func(ctx context.Context, conversation string, q ledger.Query) (ledger.Snapshot, error) {
			head, err := s.Store.Load(ctx, conversation, ledger.Query{Run: q.Run})
			time.Sleep(50 * time.Microsecond)
			rest, _ := s.Store.Load(ctx, conversation, q)
			rest.Tag, rest.Head = head.Tag, head.Head
			return rest, err
		}
		return s
	}},
	"cuts long bytes":    {"store/what is written is read, byte for byte", bodies(func(b []byte) []byte { return b[:min(len(b), 65535)] })},
	"ends at NUL":        {"store/what is written is read, byte for byte", bodies(func(b []byte) []byte { b, _, _ = bytes.Cut(b, []byte{0}); return b })},
	"mends UTF-8":        {"store/what is written is read, byte for byte", bodies(func(b []byte) []byte { return bytes.ToValidUTF8(b, []byte("\ufffd")) })},
	"trims blanks":       {"store/what is written is read, byte for byte", bodies(bytes.TrimSpace)},
	"loses index":        {"store/what is written is read, byte for byte", writing(func(_ *memledger.Store, _ string, w *ledger.Write) { plain(w) })},
	"folds case of keys": {"store/names and keys are bytes", writing(func(_ *memledger.Store, _ string, w *ledger.Write) { rekey(w, strings.ToLower) })},
	"mends UTF-8 of keys": {"store/names and keys are bytes", writing(func(_ *memledger.Store, _ string, w *ledger.Write) {
		rekey(w, func(k string) string { return strings.ToValidUTF8(k, "\ufffd") })
	})},
	"cuts long keys": {"store/names and keys are bytes", writing(func(_ *memledger.Store, _ string, w *ledger.Write) {
		rekey(w, func(k string) string { return k[:min(len(k), 2000)] })
	})},
	"never deletes a row": {"store/a change replaces, deletes, and leaves the rest", writing(func(_ *memledger.Store, _ string, w *ledger.Write) { w.Delete = nil })},
	"never gives up leases": {"store/a change replaces, deletes, and leaves the rest", writing(func(_ *memledger.Store, _ string, w *ledger.Write) {
		w.Leases = slices.DeleteFunc(slices.Clone(w.Leases), func(l ledger.LeaseWrite) bool { return l.For == 0 })
	})},
	"forgets wherever a run lives": {"store/a run is forgotten by the conversation it lives on only", func() ledger.Store {
		s := &broken{Store: memledger.New()}
		s.apply = func(ctx context.Context, conversation string, w ledger.Write) (ledger.Result, error) {
			r, err := s.Store.Apply(ctx, conversation, w)
			for _, run := range w.Forget {
				if h, _ := s.FindRun(ctx, run); r.Applied && h.Conversation != "" {
					snap := current(s.Store, h.Conversation)
					_, _ = s.Store.Apply(ctx, h.Conversation, ledger.Write{Tag: snap.Tag, NewTag: snap.Tag, Head: snap.Head, Forget: []string{run}})
				}
			}
			return r, err
		}
		return s
	}},
	"renews by creating": {"store/renewing creates nothing", func() ledger.Store {
		s := &broken{Store: memledger.New()}
		s.renew = func(ctx context.Context, leases []ledger.LeaseKey, d time.Duration) ([]ledger.Renewed, error) {
			for _, l := range leases {
				if snap := current(s.Store, l.Conversation); snap.Tag != "" {
					_, _ = s.Store.Apply(ctx, l.Conversation, ledger.Write{
						Tag: snap.Tag, NewTag: snap.Tag, Head: snap.Head, Leases: []ledger.LeaseWrite{{Run: l.Run, Nonce: l.Nonce, For: d}},
					})
				}
			}
			return s.Store.Renew(ctx, leases, d)
		}
		return s
	}},
	"renews by changing the tag": {"store/renewing extends, and changes no tag", func() ledger.Store {
		s := &broken{Store: memledger.New()}
		s.renew = func(ctx context.Context, leases []ledger.LeaseKey, d time.Duration) ([]ledger.Renewed, error) {
			for _, l := range leases {
				snap := current(s.Store, l.Conversation)
				_, _ = s.Store.Apply(ctx, l.Conversation, ledger.Write{Tag: snap.Tag, NewTag: snap.Tag + "'", Head: snap.Head})
			}
			return s.Store.Renew(ctx, leases, d)
		}
		return s
	}},
	"renews the living only": {"store/a lease that has run out can be renewed", func() ledger.Store {
		s := &broken{Store: memledger.New()}
		s.renew = func(ctx context.Context, leases []ledger.LeaseKey, d time.Duration) ([]ledger.Renewed, error) {
			answers := make([]ledger.Renewed, len(leases))
			for i, l := range leases {
				for _, is := range current(s.Store, l.Conversation).Leases {
					if is.Run == l.Run && is.Nonce == l.Nonce && is.Until > current(s.Store, "").Now {
						r, _ := s.Store.Renew(ctx, leases[i:i+1], d)
						answers[i] = r[0]
					}
				}
			}
			return answers, nil
		}
		return s
	}},
	"answers renewals in its own order": {"store/one call renews the leases of many conversations", func() ledger.Store {
		s := &broken{Store: memledger.New()}
		s.renew = func(ctx context.Context, leases []ledger.LeaseKey, d time.Duration) ([]ledger.Renewed, error) {
			r, err := s.Store.Renew(ctx, leases, d)
			slices.Reverse(r)
			return r, err
		}
		return s
	}},
	"buries the living": {"store/a tombstone is for a run that nobody knows", func() ledger.Store {
		s := &broken{Store: memledger.New()}
		s.bury = func(ctx context.Context, run string, tombstone []byte, due fence.Millis) (bool, error) {
			_, err := s.Store.Bury(ctx, run, tombstone, due)
			return true, err
		}
		return s
	}},
	"exhumes nothing": {"store/tombstones whose time is up are exhumed, nothing else", func() ledger.Store {
		return &broken{Store: memledger.New(), exhume: func(context.Context, int) (int, error) { return 0, nil }}
	}},
	"ignores a done ctx": {"store/a done ctx is an error and writes nothing", func() ledger.Store {
		s := &broken{Store: memledger.New()}
		s.apply = func(ctx context.Context, conversation string, w ledger.Write) (ledger.Result, error) {
			return s.Store.Apply(context.WithoutCancel(ctx), conversation, w)
		}
		return s
	}},
	"reports an error as a refusal": {"store/a done ctx is an error and writes nothing", func() ledger.Store {
		s := &broken{Store: memledger.New()}
		s.apply = func(ctx context.Context, conversation string, w ledger.Write) (ledger.Result, error) {
			r, err := s.Store.Apply(ctx, conversation, w)
			if errors.Is(err, context.Canceled) {
				err = nil
			}
			return r, err
		}
		return s
	}},
	"takes a prefix for a pattern": {"store/a prefix is bytes, not a pattern", scanning(func(_ *memledger.Store, q *ledger.Scan) func([]ledger.Found) []ledger.Found {
		pattern := strings.NewReplacer("%", "*", "_", "?", "[", "\\[", "*", "\\*", "?", "\\?").Replace(q.Prefix) + "*"
		limit := q.Limit
		q.Prefix, q.Limit = "", 100_000
		return func(found []ledger.Found) []ledger.Found {
			found = slices.DeleteFunc(found, func(f ledger.Found) bool {
				ok, _ := path.Match(strings.ReplaceAll(pattern, "/", "|"), strings.ReplaceAll(f.Conversation, "/", "|"))
				return !ok
			})
			return found[:min(limit, len(found))]
		}
	})},
	"pages by conversation": {"store/open rows are found, the oldest first", scanning(func(_ *memledger.Store, q *ledger.Scan) func([]ledger.Found) []ledger.Found {
		if q.After != nil && q.Kind == ledger.ScanOpen {
			after := *q.After
			after.Row = ledger.NewRow("\xff", after.Row.Index, nil)
			q.After = &after
		}
		return nil
	})},
	"finds no heads": {"store/due rows and due heads are found, the longest due first", scanning(func(*memledger.Store, *ledger.Scan) func([]ledger.Found) []ledger.Found {
		return func(found []ledger.Found) []ledger.Found {
			return slices.DeleteFunc(found, func(f ledger.Found) bool { return f.Row.Key == "" })
		}
	})},
	"locks nobody out": {"store/a lock keeps others out, and writes all or nothing", func() ledger.Store { return openLock{memledger.New()} }},
	"forgets leases when it drops": {"store/dropping leaves nothing behind", func() ledger.Store {
		s := &broken{Store: memledger.New()}
		kept := map[string][]ledger.Lease{}
		s.apply = func(ctx context.Context, conversation string, w ledger.Write) (ledger.Result, error) {
			leases := current(s.Store, conversation).Leases
			r, err := s.Store.Apply(ctx, conversation, w)
			if w.Drop && r.Applied {
				kept[conversation] = leases
			}
			return r, err
		}
		s.load = func(ctx context.Context, conversation string, q ledger.Query) (ledger.Snapshot, error) {
			snap, err := s.Store.Load(ctx, conversation, q)
			snap.Leases = append(snap.Leases, kept[conversation]...)
			return snap, err
		}
		return s
	}},
}

// openLock says that it locks.
type openLock struct{ *memledger.Store }

func (s openLock) WithLock(_ context.Context, _ string, fn func(ledger.Tx) error) error {
	runtime.Gosched()
	return fn(s.Store)
}

func believe(s *memledger.Store, w *ledger.Write) {
	if w.Home != nil {
		home := *w.Home
		home.Was, _ = s.FindRun(context.Background(), home.Run)
		w.Home = &home
	}
}

func plain(w *ledger.Write) {
	w.Put = slices.Clone(w.Put)
	for i, r := range w.Put {
		body, _ := r.Body()
		w.Put[i] = ledger.NewRow(r.Key, fence.Index{Due: r.Index.Due}, body)
	}
}

func rekey(w *ledger.Write, as func(string) string) {
	w.Put = slices.Clone(w.Put)
	for i, r := range w.Put {
		body, _ := r.Body()
		w.Put[i] = ledger.NewRow(as(r.Key), r.Index, body)
	}
}

const brokenVariable = "LEDGERTEST_BROKEN"

// TestTheContractOfABrokenStore is run by the test below, in a process of its own.
func TestTheContractOfABrokenStore(t *testing.T) {
	name, ok := os.LookupEnv(brokenVariable)
	if !ok {
		t.Skip("run by TestBrokenStoresAreCaught")
	}
	open := func() ledger.Store { return memledger.New() }
	if m, ok := mistakes[name]; ok {
		open = m.open
	} else if rule, err := sabotage.Parse(name); err == nil {
		switchedOff = sabotage.Of(rule)
	}
	Run(t, func(*testing.T) ledger.Store { return open() })
}

func TestBrokenStoresAreCaught(t *testing.T) {
	t.Parallel()
	caught := map[string]string{sabotage.CounterTags.String(): "ledger/a crash that loses a Begin revives no older one"}
	for name, m := range mistakes {
		caught[name] = m.caught
	}
	for _, name := range slices.Sorted(maps.Keys(caught)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if out, failed := contract(t, name, caught[name]); !failed {
				t.Errorf("a store that %s passes %q\n%s", name, caught[name], out)
			}
		})
	}
	t.Run("no mistake", func(t *testing.T) {
		t.Parallel()
		if out, failed := contract(t, "no mistake", ""); failed {
			t.Errorf("a store without a mistake fails\n%s", out)
		}
	})
}

// contract runs one test of the contract, or all, in a process of its own.
func contract(t *testing.T, mistake, name string) (output string, failed bool) {
	t.Helper()
	pattern := "^TestTheContractOfABrokenStore$"
	for part := range strings.SplitSeq(name, "/") {
		if part == "" {
			break
		}
		pattern += "/^" + strings.ReplaceAll(part, " ", "_") + "$"
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", pattern, "-test.v", "-test.timeout", "60s")
	cmd.Env = append(os.Environ(), brokenVariable+"="+mistake)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	leaf := name[strings.IndexByte(name, '/')+1:]
	if !strings.Contains(string(out), "/"+strings.ReplaceAll(leaf, " ", "_")) {
		t.Fatalf("no test is called %q\n%s", name, out)
	}
	return string(out), err != nil
}
