package fence_test

import (
	"testing"

	"github.com/fencedrun/fencedrun/fence"
)

// TestReadersSeeWhatHasLapsed: a list or a history shows an outcome as unknown from its
// deadline on, though nobody has written that down yet.
func TestReadersSeeWhatHasLapsed(t *testing.T) {
	s := staged(t, `
begin run=1 brings=m1
claim run=1 effect=reply:m1`)
	c := s.w.state("c")
	e := effectRow(c, "reply:m1")
	view := fence.View{Now: s.w.now + 120_001, Head: c.Head, Rows: c.Rows}
	shown := s.w.rules.Lapsed(view)
	if got := shown.Rows[e.RowKey()].(*fence.Effect).State(); got != fence.Ambiguous || shown.Head.Unresolved[0].State != fence.Ambiguous {
		t.Errorf("shown as %s, and by the head as %s", got, shown.Head.Unresolved[0].State)
	}
	if e.State() != fence.Pending || c.Head.Unresolved[0].State != fence.Pending {
		t.Error("showing it changed the record")
	}
	if got := s.w.rules.LapsedEffect(fence.View{Now: view.Now}, e).State(); got != fence.Ambiguous {
		t.Errorf("without a head it is shown as %s", got)
	}
	if got := s.w.rules.LapsedEffect(fence.View{Now: s.w.now}, e); got != e {
		t.Error("before its deadline it is shown as another record")
	}
	if empty := s.w.rules.Lapsed(fence.View{Now: 1}); empty.Head != nil {
		t.Error("a conversation that is not known is shown with a head")
	}
}
