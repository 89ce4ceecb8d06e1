package fence_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"

	"github.com/fencedrun/fencedrun/fence"
)

// words lists the constants of a type in words.go.
func words(t *testing.T, typ string) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "words.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if id, ok := spec.Type.(*ast.Ident); ok && id.Name == typ {
			word, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			found = append(found, word)
		}
		return true
	})
	if len(found) < 3 {
		t.Fatalf("only %v of %s", found, typ)
	}
	return found
}

func TestEveryReasonIsExplained(t *testing.T) {
	for _, reason := range words(t, "Reason") {
		text := fence.Describe(&fence.Refusal{Reason: fence.Reason(reason)})
		if !strings.HasPrefix(text, "refused: "+reason+" – ") || strings.Contains(text, "no more is known") {
			t.Errorf("%s is described as %q", reason, text)
		}
	}
	if text := fence.Describe(&fence.Refusal{Reason: "new"}); text != "refused: new – no more is known" {
		t.Errorf("a reason from tomorrow: %q", text)
	}
}

func TestEveryEventHasItsText(t *testing.T) {
	for _, kind := range words(t, "EventKind") {
		e := fence.Event{
			Kind: fence.EventKind(kind), Run: runKey("1"), Delivery: 2, Effect: "id", Intent: "reply", Key: `"m1"`, Call: 3,
			Inbound: "m9", Reason: fence.ReasonBusy, Text: "so it is",
		}
		text := fence.Describe(e)
		if !strings.HasPrefix(text, kind+": ") || len(text) < len(kind)+15 || strings.ContainsAny(text, "{}") {
			t.Errorf("%s is described as %q", kind, text)
		}
		if bare := fence.Describe(&fence.Event{Kind: e.Kind}); strings.ContainsAny(bare, "{}") || strings.Contains(bare, "  ") {
			t.Errorf("%s without details is described as %q", kind, bare)
		}
	}
	if text := fence.Describe(fence.Event{Kind: "new", Run: runKey("1"), Intent: "reply", Key: `"m1"`}); text != `new: run q/1 reply "m1"` {
		t.Errorf("an event from tomorrow: %q", text)
	}
}

func TestDescribe(t *testing.T) {
	const at = 1_700_000_000_000
	pending := fence.Conflict{
		ID: "e", Intent: "reply", Key: `"m1"`, State: fence.Pending, Run: runKey("1"), Delivery: 1, Call: 1, Deadline: at, Inbound: []string{"m1"},
	}
	for _, tt := range []struct {
		x    any
		want string
	}{
		{(*fence.Refusal)(nil), "not refused"},
		{
			fence.Refusal{Reason: fence.ReasonAlreadyAnswered, ComeBack: true, At: at + 1, Answered: []fence.Conflict{pending}, Open: []string{"m2"}},
			`refused: already_answered – m1 is being answered by reply "m1" (pending, call 1 of run q/1 delivery 1, until 2023-11-14T22:13:20Z); open: m2; come back at 2023-11-14T22:13:20.001Z`,
		},
		{pending, `reply "m1" (pending, call 1 of run q/1 delivery 1, until 2023-11-14T22:13:20Z)`},
		{&pending, `reply "m1" (pending, call 1 of run q/1 delivery 1, until 2023-11-14T22:13:20Z)`},
		{
			&fence.Refusal{Reason: fence.ReasonSuperseded, ComeBack: true, At: at, Conflicts: []fence.Conflict{pending}},
			`refused: superseded – a newer run wrote, and the messages of this job are taken: m1 is being answered by reply "m1" (pending, call 1 of run q/1 delivery 1, until 2023-11-14T22:13:20Z); come back at 2023-11-14T22:13:20Z`,
		},
		{fence.BeginVerdict{}, "undecided"},
		{fence.ClaimVerdict{}, "undecided"},
		{fence.ReportVerdict{}, "undecided"},
		{fence.ResolveVerdict{}, "undecided"},
		{fence.SettleVerdict{}, "not recorded: the claim is not known here"},
		{fence.CancelVerdict{}, "not cancelled: the run is not known here"},
		{fence.Conversation{}, "the conversation is not known"},
		{&fence.Conversation{Head: &fence.Head{Conversation: "c", Seq: 2, Fence: 1}}, "conversation c: seq 2, fence 1"},
		{&fence.Reference{Ref: "R", Effect: "e"}, "reference R is one of our own effects"},
		{&fence.Delivery{Run: runKey("1"), ID: fence.DeliveryID{Number: 2}, Mode: fence.Exclusive, Twice: true, Seen: 5, CaughtUp: 4},
			"run q/1 delivery 2: exclusive, no order, has seen up to 5, caught up at 4, refused twice for the same"},
		{&fence.Inbound{ID: "m1", Registered: true}, "message m1: open"},
		{42, "fence: nothing is known of a int"},
	} {
		if got := fence.Describe(tt.x); got != tt.want {
			t.Errorf("Describe:\ngot  %s\nwant %s", got, tt.want)
		}
	}
}

// TestTimesAreToldTheWayPeopleReadThem also shows the unit that is chosen.
func TestTimesAreToldTheWayPeopleReadThem(t *testing.T) {
	for _, tt := range []struct {
		from, to fence.Millis
		want     string
	}{
		{0, 120_000, "+120s"}, {0, 1500, "+1.5s"}, {0, 999, "+999ms"}, {0, 30_001, "+30.001s"}, {0, 600_000, "+10m"},
		{0, 3_600_000, "+1h"}, {0, 86_400_000, "+1d"}, {0, 3_600_001, "+1h0m0.001s"}, {5, 5, "now"}, {5000, 2000, "-3s"},
	} {
		text := fence.DescribeAt(fence.Conflict{ID: "e", Intent: "i", Key: "k", State: fence.Pending, Deadline: tt.to}, tt.from)
		if want := "i k (pending, a write without a job, until " + tt.want + ")"; text != want {
			t.Errorf("got %s, want %s", text, want)
		}
	}
}

func TestALongSummaryIsCutBetweenRunes(t *testing.T) {
	s := newStage(rules())
	p := &past{t, s.w}
	d := p.begin("1", 1)
	e := effectOf("say:1")
	q := fence.ClaimRequest{
		Identity: s.w.identity("c"), Delivery: d, Effect: e.id, Intent: e.intent, Key: e.key, Claim: "claim", For: 1000,
		Summary: strings.Repeat("ä", 60),
	}
	through(p, fence.RunKey{}, func(view fence.View) (fence.ClaimVerdict, fence.Change) { return s.w.rules.Claim(view, q) })
	u := s.w.conv("c").head.Unresolved[0]
	if u.Summary != strings.Repeat("ä", 40)+"…" {
		t.Errorf("the head keeps %q", u.Summary)
	}
	if got := effectRow(s.w.state("c"), "say:1").Calls[0].Summary; got != q.Summary {
		t.Errorf("the row keeps %q", got)
	}
}
