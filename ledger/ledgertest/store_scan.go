package ledgertest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/ledger"
)

var scanTests = []test{
	{"open rows are found, the oldest first", scansOpen},
	{"due rows and due heads are found, the longest due first", scansDue},
	{"the rows of a conversation are found by key", scansRows},
	{"a prefix is bytes, not a pattern", scansPrefix},
}

// paged scans with pages of every small size; all must give the same.
func (b *bench) paged(q ledger.Scan) []ledger.Found {
	b.Helper()
	q.Limit = 10_000
	all := b.scan(q)
	for _, size := range []int{1, 2, 3, 7} {
		q.Limit, q.After = size, nil
		var got []ledger.Found
		for len(got) <= len(all) {
			page := b.scan(q)
			if len(page) > size {
				b.Fatalf("a page of %d holds %d", size, len(page))
			}
			got = append(got, page...)
			if len(page) < size {
				break
			}
			q.After = &page[len(page)-1]
		}
		if !slices.EqualFunc(got, all, sameFound) {
			b.Errorf("in pages of %d: %d rows\n%v\nat once: %d rows\n%v", size, len(got), names(got), len(all), names(all))
		}
	}
	return all
}

func sameFound(a, b ledger.Found) bool {
	return a.Conversation == b.Conversation && a.Row.Key == b.Row.Key && sameBody(a.Row, b.Row)
}

func names(found []ledger.Found) []string {
	var list []string
	for _, f := range found {
		list = append(list, fmt.Sprintf("%.20q/%.20q", f.Conversation, f.Row.Key))
	}
	return list
}

// wantFound checks a scan against what must be found, in the order given by less.
func (b *bench) wantFound(what string, q ledger.Scan, want []ledger.Found, by func(a, b ledger.Found) int) {
	b.Helper()
	slices.SortFunc(want, func(x, y ledger.Found) int {
		return cmp.Or(by(x, y), strings.Compare(x.Conversation, y.Conversation), strings.Compare(x.Row.Key, y.Row.Key))
	})
	if got := b.paged(q); !slices.EqualFunc(got, want, sameFound) {
		b.Errorf("%s: found\n%v\nwant\n%v", what, names(got), names(want))
	}
}

func byAt(a, b ledger.Found) int  { return cmp.Compare(a.Row.Index.At, b.Row.Index.At) }
func byDue(a, b ledger.Found) int { return cmp.Compare(a.Row.Index.Due, b.Row.Index.Due) }
func byNothing(_, _ ledger.Found) int {
	return 0
}

func scansOpen(b *bench) {
	var effects, inbound, onC1 []ledger.Found
	for c := range 6 {
		conversation := fmt.Sprintf("c%d", (c*5)%6)
		var rows []ledger.Row
		for i := range 8 {
			at := fence.Millis((i*3)%8/2 + 10) // twice each
			e := row(fmt.Sprintf("e/%d", i), "x", fence.Index{Open: fence.UnresolvedEffect, At: at})
			in := row(fmt.Sprintf("i/%d", i), "x", fence.Index{Open: fence.OpenInbound, At: at, Due: 3})
			rows = append(rows, e, in, row(fmt.Sprintf("z/%d", i), "x", fence.Index{At: at, Landed: 1}))
			if at <= 12 {
				effects = append(effects, ledger.Found{Conversation: conversation, Row: e})
				inbound = append(inbound, ledger.Found{Conversation: conversation, Row: in})
				if conversation == "c1" {
					onC1 = append(onC1, ledger.Found{Conversation: conversation, Row: in})
				}
			}
		}
		b.write(conversation, ledger.Write{Put: rows})
	}
	b.wantFound("effects", ledger.Scan{Kind: ledger.ScanOpen, Open: fence.UnresolvedEffect, Before: 12}, effects, byAt)
	b.wantFound("messages", ledger.Scan{Kind: ledger.ScanOpen, Open: fence.OpenInbound, Before: 12}, inbound, byAt)
	b.wantFound("of one conversation", ledger.Scan{Kind: ledger.ScanOpen, Open: fence.OpenInbound, Before: 12, Conversation: "c1"}, onC1, byAt)
	b.wantFound("before all", ledger.Scan{Kind: ledger.ScanOpen, Open: fence.OpenInbound, Before: 9}, nil, byAt)
}

func scansDue(b *bench) {
	now := b.load("c", ledger.Query{}).Now
	var due []ledger.Found
	for c := range 5 {
		conversation := fmt.Sprintf("c%d", c)
		head := row("", "head", fence.Index{Due: now - fence.Millis(c%2)*1000})
		if c == 4 {
			head = row("", "head", fence.Index{Due: now + seconds(3600)})
		} else {
			due = append(due, ledger.Found{Conversation: conversation, Row: head})
		}
		var rows []ledger.Row
		for i := range 6 {
			r := row(fmt.Sprintf("k%d", i), "x", fence.Index{Landed: 1, Due: now - fence.Millis((i*7)%6)})
			rows = append(rows, r)
			due = append(due, ledger.Found{Conversation: conversation, Row: r})
		}
		rows = append(rows, row("later", "x", fence.Index{Due: now + seconds(3600)}), row("never", "x"))
		b.write(conversation, ledger.Write{Head: head, Put: rows})
	}
	b.wantFound("due", ledger.Scan{Kind: ledger.ScanDue}, due, byDue)
	var one []ledger.Found
	for _, f := range due {
		if f.Conversation == "c2" {
			one = append(one, f)
		}
	}
	b.wantFound("due on c2", ledger.Scan{Kind: ledger.ScanDue, Prefix: "c2"}, one, byDue)
}

func scansRows(b *bench) {
	var rows []ledger.Row
	for i, key := range nasty {
		rows = append(rows, row("n/"+key[:min(len(key), 2000)]+fmt.Sprint(i), "x"))
	}
	for i := range 20 {
		rows = append(rows, row(fmt.Sprintf("e/%d", i), fmt.Sprint(i)))
	}
	b.write("c", ledger.Write{Put: rows})
	b.write("d", ledger.Write{Put: rows[:3]})
	for _, prefix := range []string{"", "e/", "e/1", "n/", "n/a", "n/\xff", "x", "e/1x"} {
		var want []ledger.Found
		for _, r := range rows {
			if strings.HasPrefix(r.Key, prefix) {
				want = append(want, ledger.Found{Conversation: "c", Row: r})
			}
		}
		b.wantFound(fmt.Sprintf("keys that start with %q", prefix), ledger.Scan{Kind: ledger.ScanRows, Conversation: "c", Keys: prefix}, want, byNothing)
	}
	b.wantFound("no such conversation", ledger.Scan{Kind: ledger.ScanRows, Conversation: "nothing"}, nil, byNothing)
}

func scansPrefix(b *bench) {
	all := []string{"a%b", "aXb", "a_b", `a\b`, `a\%b`, "A%b", "a", "a\xff", "a\xff\xff", "a\xff\xffb", "b", "\xff", "\xff\xffx", "1:a/x", "1:a/", "2:a/x"}
	for _, conversation := range all {
		b.write(conversation, ledger.Write{Put: []ledger.Row{row("k", "x", fence.Index{Open: fence.OpenInbound, At: 1, Due: 1})}})
	}
	for _, prefix := range append([]string{"", "a%", "a_", `a\`, "%", "_", "zz"}, all...) {
		var want []ledger.Found
		for _, conversation := range all {
			if strings.HasPrefix(conversation, prefix) {
				want = append(want, ledger.Found{Conversation: conversation, Row: row("k", "x", fence.Index{Open: fence.OpenInbound, At: 1, Due: 1})})
			}
		}
		b.wantFound(fmt.Sprintf("open under %q", prefix), ledger.Scan{Kind: ledger.ScanOpen, Open: fence.OpenInbound, Before: 5, Prefix: prefix}, want, byAt)
		b.wantFound(fmt.Sprintf("due under %q", prefix), ledger.Scan{Kind: ledger.ScanDue, Prefix: prefix}, want, byDue)
	}
}
