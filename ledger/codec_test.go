package ledger

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/fencedrun/fencedrun/fence"
)

func TestARowOfPlainTextIsPlainJSON(t *testing.T) {
	body, err := rowOf(&fence.Inbound{ID: "m1", Registered: true, Seq: 3, NamedAt: 5}).Body()
	if err != nil || string(body) != `{"id":"m1","reg":true,"seq":3,"first":0,"named":5}` {
		t.Errorf("%s, %v", body, err)
	}
}

func TestARowOfOtherBytesIsStillJSON(t *testing.T) {
	body, err := rowOf(&fence.Inbound{ID: "m\xff", Dismissed: "plain"}).Body()
	if err != nil || !utf8.Valid(body) || !bytes.Contains(body, []byte("plain")) {
		t.Errorf("%q, %v", body, err)
	}
}

func TestARowThatCannotBeReadIsAnError(t *testing.T) {
	for _, r := range []Row{
		NewRow("", fence.Index{}, nil),
		NewRow("r/x", fence.Index{}, []byte("{")),
		NewRow("e/x", fence.Index{}, []byte(`{"calls":7}`)),
		NewRow("z/x", fence.Index{}, []byte("{}")),
		NewRow("r", fence.Index{}, []byte("{}")),
		NewRow("i/x", fence.Index{}, []byte(` {"id":"\u0000%%%"}`)),
	} {
		if rec, err := r.record(); !errors.Is(err, ErrCorrupt) {
			t.Errorf("row %q: %+v, %v", r.Key, rec, err)
		}
	}
	if _, err := homeOf(Home{Found: true, Tombstone: []byte("x")}); !errors.Is(err, ErrCorrupt) {
		t.Errorf("tombstone: %v", err)
	}
}

func FuzzRecordsComeBackAsTheyWere(f *testing.F) {
	for _, s := range []string{"", "plain", "\x00", "\x00YWJj", "\xff", "a\xc3\x28", " ", "\u2028", `"\`, "\ufffd"} {
		f.Add(s, "x", []byte(s))
		f.Add("x", s, []byte(nil))
	}
	f.Fuzz(func(t *testing.T, a, b string, raw []byte) {
		for _, rec := range []fence.Record{
			&fence.Head{Namespace: a, Conversation: b, Epoch: a, Seats: []fence.Seat{{Run: fence.RunKey{Queue: a, ID: b}}}},
			&fence.Run{Key: fence.RunKey{Queue: b, ID: a}, Inbound: []string{a, b, ""}, Progress: raw, CancelWhy: a},
			&fence.Effect{ID: a, Key: b, Calls: []fence.Call{{Summary: a, Error: b, Result: raw, Answers: []string{a}}}},
			&fence.Inbound{ID: a, Dismissed: b, Answered: []fence.Answer{{ID: b, Intent: a}}},
			&fence.Report{ID: b, Reference: a, Answers: []string{b, a}},
			&fence.Reference{Ref: a, Effect: b},
		} {
			row := rowOf(rec)
			body, err := row.Body()
			if err != nil {
				t.Fatalf("%T: %v", rec, err)
			}
			got, err := NewRow(row.Key, row.Index, body).record()
			if err != nil {
				t.Fatalf("%T: %v", rec, err)
			}
			// Bytes that are none and no bytes are the same.
			same := cmp.Options{cmp.Comparer(bytes.Equal), cmpopts.IgnoreUnexported(fence.Effect{})}
			if diff := cmp.Diff(rec, got, same); diff != "" {
				t.Errorf("%T: %s", rec, diff)
			}
			if strings.HasPrefix(string(body), " ") && utf8.ValidString(a) && utf8.ValidString(b) && !strings.HasPrefix(a, "\x00") && !strings.HasPrefix(b, "\x00") {
				t.Errorf("armored without need: %q", body)
			}
		}
	})
}
