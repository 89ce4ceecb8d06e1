package pgledger_test

import (
	"testing"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/ledger"
)

func TestPeopleCanReadWhateverIsThere(t *testing.T) {
	store, pool, schema := newStore(t)
	l := newLedger(store)
	h := begun(t, l, "chat 7", "job")
	q := effect("chat 7", "m1")
	v := claim(t, h, q)
	s := settlement(v, "")
	s.State, s.Result, s.Error = fence.Failed, nil, "went\x00wrong \\u0000"
	if _, _, err := h.Settle(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	bad := effect("chat 7", "m2")
	v = claim(t, h, bad)
	s = settlement(v, "")
	s.State, s.Result, s.Error = fence.Failed, nil, "bytes \xff\xfe"
	if _, _, err := h.Settle(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	w := change("", "t\x00", false)
	w.Head = ledger.NewRow("", fence.Index{Due: 1 << 60}, []byte("\x00\xff no JSON"))
	for i, body := range []string{"", "\x00", "\xff\xfe", "{", `"\ud800"`, "1e999999", "nul"} {
		w.Put = append(w.Put, ledger.NewRow(string(rune('a'+i))+"\x00\xff", fence.Index{Open: fence.UnresolvedEffect, At: -1 << 60, Due: -1}, []byte(body)))
	}
	must(t, store, "\x00\xff", w)

	view := schema + ".readable"
	if n := scalar[int](t, pool, "select count(*) from "+view+" where conversation is not null and key is not null and body is not null"); n < 12 {
		t.Errorf("%d rows can be read", n)
	}
	if got := scalar[string](t, pool, "select string_agg(distinct kind, ' ' order by kind) from "+view); got != "effect head run" {
		t.Errorf("kinds %q", got)
	}
	if got := scalar[string](t, pool, "select body #>> '{calls,0,err}' from "+view+" where kind = 'effect' and body::text like '%wrong%'"); got != "went\ufffdwrong \\u0000" {
		t.Errorf("an error text with a NUL is shown as %q", got)
	}
	if n := scalar[int](t, pool, "select count(*) from "+view+" where kind = 'effect' and body::text like '%\ufffdYnl0ZXMg//4=%'"); n != 1 {
		t.Errorf("bytes that are no text are shown by %d rows, want their base64", n)
	}
	if n := scalar[int](t, pool, "select count(*) from "+view+" where body ? 'bytes'"); n < 7 {
		t.Errorf("%d bodies that are no JSON are shown as bytes", n)
	}
	if got := scalar[string](t, pool, "select conversation from "+view+" where kind = 'head' and body ? 'bytes'"); got != `\000\377` {
		t.Errorf("a name that is no text is shown as %q", got)
	}
}
