package ledgertest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/ledger"
)

// bench is what a test of the store works on.
type bench struct {
	testing.TB
	t     *testing.T // nil in a benchmark
	ctx   context.Context
	store ledger.Store
	open  func(t *testing.T) ledger.Store
	again func(t *testing.T, store ledger.Store) ledger.Store
	tags  int // drawn so far
	lives int // scripts played so far
}

// other returns another handle on the store's data.
func (b *bench) other() ledger.Store {
	b.Helper()
	return b.again(b.t, b.store)
}

// tag draws a tag. It looks like nothing in particular: no store may make anything of it.
func (b *bench) tag() string {
	b.tags++
	return fmt.Sprintf("\x00tag-%d\xff", (b.tags*7919)%1000+b.tags*1000)
}

func row(key, body string, ix ...fence.Index) ledger.Row {
	if len(ix) > 0 {
		return ledger.NewRow(key, ix[0], []byte(body))
	}
	return ledger.NewRow(key, fence.Index{}, []byte(body))
}

// write makes a change of what the store has now, which must be applied. It fills in tags
// and, if there is none, a head.
func (b *bench) write(conversation string, w ledger.Write) string {
	b.Helper()
	w.Tag = b.load(conversation, ledger.Query{}).Tag
	w.NewTag = b.tag()
	if body, _ := w.Head.Body(); body == nil {
		w.Head = row("", "head")
	}
	if r := b.apply(conversation, w); !r.Applied {
		b.Fatalf("a change of the present conversation %q was refused", conversation)
	}
	return w.NewTag
}

func (b *bench) apply(conversation string, w ledger.Write) ledger.Result {
	b.Helper()
	r, err := b.store.Apply(b.ctx, conversation, w)
	if err != nil {
		b.Fatalf("Apply(%q): %v", conversation, err)
	}
	return r
}

func (b *bench) load(conversation string, q ledger.Query) ledger.Snapshot {
	b.Helper()
	s, err := b.store.Load(b.ctx, conversation, q)
	if err != nil {
		b.Fatalf("Load(%q): %v", conversation, err)
	}
	return s
}

func (b *bench) scan(q ledger.Scan) []ledger.Found {
	b.Helper()
	if q.Limit == 0 {
		q.Limit = 1000
	}
	found, err := b.store.Scan(b.ctx, q)
	if err != nil {
		b.Fatalf("Scan: %v", err)
	}
	return found
}

func (b *bench) home(run string) ledger.Home {
	b.Helper()
	h, err := b.store.FindRun(b.ctx, run)
	if err != nil {
		b.Fatalf("FindRun(%q): %v", run, err)
	}
	return h
}

// rows returns all rows of a conversation.
func (b *bench) rows(conversation string) map[string]ledger.Row {
	b.Helper()
	rows := map[string]ledger.Row{}
	for _, f := range b.scan(ledger.Scan{Kind: ledger.ScanRows, Conversation: conversation, Limit: 100_000}) {
		rows[f.Row.Key] = f.Row
	}
	return rows
}

// wantRows checks that a conversation has exactly these rows, byte for byte.
func (b *bench) wantRows(conversation string, want ...ledger.Row) {
	b.Helper()
	got := b.rows(conversation)
	for _, w := range want {
		g, ok := got[w.Key]
		if !ok {
			b.Errorf("%q has no row %q", conversation, w.Key)
			continue
		}
		b.sameRow(g, w)
		delete(got, w.Key)
	}
	for _, key := range slices.Sorted(maps.Keys(got)) {
		b.Errorf("%q has a row %q that nobody wrote", conversation, key)
	}
}

func (b *bench) sameRow(got, want ledger.Row) {
	b.Helper()
	g, errG := got.Body()
	w, errW := want.Body()
	switch {
	case errG != nil || errW != nil:
		b.Errorf("row %q: body: %v, %v", want.Key, errG, errW)
	case got.Key != want.Key:
		b.Errorf("row %q came back under %q", want.Key, got.Key)
	case !bytes.Equal(g, w):
		b.Errorf("row %q: %d bytes %s, want %d bytes %s", want.Key, len(g), excerpt(g), len(w), excerpt(w))
	case got.Index != want.Index:
		b.Errorf("row %q: index %+v, want %+v", want.Key, got.Index, want.Index)
	}
}

func excerpt(body []byte) string {
	if len(body) > 40 {
		return fmt.Sprintf("%q…", body[:40])
	}
	return fmt.Sprintf("%q", body)
}

// state is all that a conversation shows, to see that nothing of it changed.
type state struct {
	snap  ledger.Snapshot
	rows  map[string]ledger.Row
	homes map[string]ledger.Home
}

func (b *bench) state(conversation string, runs ...string) state {
	b.Helper()
	s := state{b.load(conversation, ledger.Query{}), b.rows(conversation), map[string]ledger.Home{}}
	for _, run := range runs {
		s.homes[run] = b.home(run)
	}
	return s
}

// unchanged checks that a conversation is what it was.
func (b *bench) unchanged(why, conversation string, was state) {
	b.Helper()
	is := b.state(conversation, slices.Collect(maps.Keys(was.homes))...)
	if is.snap.Tag != was.snap.Tag {
		b.Errorf("%s: the tag changed", why)
	}
	if was.snap.Tag != "" {
		b.sameRow(is.snap.Head, was.snap.Head)
	}
	if !maps.EqualFunc(is.rows, was.rows, sameBody) {
		b.Errorf("%s: the rows changed from %v to %v", why, slices.Sorted(maps.Keys(was.rows)), slices.Sorted(maps.Keys(is.rows)))
	}
	if !sameLeases(is.snap.Leases, was.snap.Leases) {
		b.Errorf("%s: the leases changed from %v to %v", why, was.snap.Leases, is.snap.Leases)
	}
	for run, home := range was.homes {
		if !sameHome(is.homes[run], home) {
			b.Errorf("%s: the home of %q changed from %+v to %+v", why, run, home, is.homes[run])
		}
	}
}

func sameBody(a, b ledger.Row) bool {
	x, errX := a.Body()
	y, errY := b.Body()
	return errX == nil && errY == nil && bytes.Equal(x, y) && a.Index == b.Index
}

func sameLeases(a, b []ledger.Lease) bool {
	return slices.Equal(sortedLeases(a), sortedLeases(b))
}

func sortedLeases(leases []ledger.Lease) []ledger.Lease {
	sorted := slices.Clone(leases)
	slices.SortFunc(sorted, func(a, b ledger.Lease) int {
		return cmp.Or(strings.Compare(a.Run, b.Run), strings.Compare(a.Nonce, b.Nonce))
	})
	return sorted
}

func sameHome(a, b ledger.Home) bool {
	return a.Found == b.Found && a.Conversation == b.Conversation && bytes.Equal(a.Tombstone, b.Tombstone)
}

// nasty are names that break stores which quote, trim, fold, normalize or split them.
var nasty = []string{
	"a", "A", "a ", " a", "a\n", "ä", "a\u0308", "ａ", "a\x00", "a\x00b", "\x00", "\xff", "\xff\xfe", "\xc3\x28", "%", "_", "a%", "a_", `\`, `\%`, "'", `"`, "`",
	"{a}", "{", "}", "[", "*", "?", ":", "/", "0:/a", ";--", "$1", "?1", "NULL", "null", "0", "00", "1e3", "-1", "\u2028", "\ufeffa", "😀",
	string(bytes.Repeat([]byte("x"), 2048)), string(bytes.Repeat([]byte("\xff"), 2048)), string(bytes.Repeat([]byte("x"), 2047)) + "y",
}

// wait returns once the store's clock has passed until. It asks the store and nothing else.
func (b *bench) wait(until fence.Millis) {
	b.Helper()
	for range 100_000 {
		if b.load("clock", ledger.Query{}).Now > until {
			return
		}
		time.Sleep(100 * time.Microsecond)
	}
	b.Fatal("the store's clock stands still")
}

func seconds(n int) fence.Millis { return fence.Millis(n) * 1000 }
