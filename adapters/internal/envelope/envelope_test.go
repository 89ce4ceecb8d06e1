package envelope

import (
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden file; only to add to it, never to change a line")

var examples = map[string]Envelope{
	"least": {Conversation: "c"},
	"all": {
		Conversation: "thread/7 é\n", Inbound: []string{"m1", `"`, "m 3"}, Source: "ledger stamp", Number: math.MaxInt64,
		AsOf: math.MaxInt64 - 1, Nonce: "n", Kept: true,
	},
	"no inbound":     {Conversation: "c", NoInbound: true},
	"zero order":     {Conversation: "c", Source: "s"},
	"negative order": {Conversation: "c", Source: "s", Number: math.MinInt64},
}

func TestHeadersRoundTrip(t *testing.T) {
	for name, e := range examples {
		h, err := e.Headers()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got, ok, err := FromHeaders(h)
		if err != nil || !ok {
			t.Fatalf("%s: ok %v, %v", name, ok, err)
		}
		if diff := cmp.Diff(e, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestMetadataRoundTripKeepsWhatIsThere(t *testing.T) {
	for name, e := range examples {
		for _, before := range []string{"", "{}", "null", `{"theirs":{"big":12345678901234567890}}`, `{"fencedrun:job":{"conversation":"old"}}`, `{"a":1,"a":2}`} {
			stamped, err := e.Stamp([]byte(before))
			if err != nil {
				t.Fatalf("%s on %q: %v", name, before, err)
			}
			got, ok, err := FromMetadata(stamped)
			if err != nil || !ok {
				t.Fatalf("%s on %q: ok %v, %v", name, before, ok, err)
			}
			if diff := cmp.Diff(e, got); diff != "" {
				t.Errorf("%s on %q: %s", name, before, diff)
			}
			if strings.Contains(before, "theirs") && !strings.Contains(string(stamped), `"theirs":{"big":12345678901234567890}`) {
				t.Errorf("%s on %q: the rest of the metadata is lost or changed: %s", name, before, stamped)
			}
		}
	}
}

// Jobs outlive deployments: what an older version enqueued must be readable.
func TestEncodingsAreFrozen(t *testing.T) {
	var got strings.Builder
	for _, name := range slices.Sorted(maps.Keys(examples)) {
		e := examples[name]
		h, err := e.Headers()
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&got, "%s\n", name)
		for _, k := range slices.Sorted(maps.Keys(h)) {
			fmt.Fprintf(&got, "  %s: %q\n", k, h[k])
		}
		metadata, err := e.Stamp(nil)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&got, "  %s\n", metadata)
	}
	fmt.Fprintf(&got, "digest\n  %s\n", Digest("kind", []byte("payload"), "nonce"))
	if *rewrite {
		if err := os.WriteFile("testdata/encodings.txt", []byte(got.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/encodings.txt")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("an encoding changed (jobs already enqueued cannot be read any more):\n%s", diff)
	}
}

func TestForeignJobsHaveNoEnvelope(t *testing.T) {
	for _, h := range []map[string]string{nil, {}, {"x": "y"}} {
		if _, ok, err := FromHeaders(h); ok || err != nil {
			t.Errorf("headers %v: ok %v, %v", h, ok, err)
		}
	}
	for _, m := range []string{"", "{}", "null", `{"x":1}`} {
		if _, ok, err := FromMetadata([]byte(m)); ok || err != nil {
			t.Errorf("metadata %q: ok %v, %v", m, ok, err)
		}
	}
}

func TestUnreadableHeadersNameTheHeader(t *testing.T) {
	for header, values := range map[string][]string{
		HeaderInbound: {"m1", `{"a":1}`, `[1]`, "[", `[""]`},
		HeaderOrder:   {"", "7", "7 ", "x ledger", " ledger", "9223372036854775808 s"},
		HeaderAsOf:    {"", "x", "-1", "1.5"},
	} {
		for _, value := range values {
			h := map[string]string{HeaderConversation: "c", header: value}
			_, ok, err := FromHeaders(h)
			if !ok || err == nil {
				if value == "" && header == HeaderInbound {
					continue
				}
				t.Errorf("%s = %q: ok %v, no error", header, value, ok)
				continue
			}
			name := map[string]string{HeaderInbound: "nbound", HeaderOrder: "order", HeaderAsOf: ""}[header]
			if !strings.Contains(err.Error(), name) {
				t.Errorf("%s = %q: %v does not name the field", header, value, err)
			}
		}
	}
}

func TestUnreadableMetadataIsAnError(t *testing.T) {
	for _, m := range []string{"[", "[]", "1", `{"fencedrun:job":1}`, `{"fencedrun:job":{}}`, `{"fencedrun:job":{"conversation":"c","as_of":-1}}`} {
		if _, _, err := FromMetadata([]byte(m)); err == nil {
			t.Errorf("metadata %s: no error", m)
		}
	}
	if _, err := (&Envelope{Conversation: "c"}).Stamp([]byte("[]")); err == nil {
		t.Error("stamped metadata that is no object")
	}
}

func TestHasLooksForAValue(t *testing.T) {
	for metadata, want := range map[string]bool{
		`{"k":"v"}`: true, `{"k":""}`: true, `{"k":null}`: false, `{"x":"k"}`: false, ``: false, `[]`: false, `{`: false,
	} {
		if got := Has([]byte(metadata), "k"); got != want {
			t.Errorf("%s: %v, want %v", metadata, got, want)
		}
	}
}

func TestCheckNamesTheField(t *testing.T) {
	for field, e := range map[string]Envelope{
		"Conversation": {},
		"Inbound[1]":   {Conversation: "c", Inbound: []string{"a", ""}},
		"Inbound[2]":   {Conversation: "c", Inbound: []string{"a", "b", "a"}},
		"NoInbound":    {Conversation: "c", Inbound: []string{"a"}, NoInbound: true},
		"Order.Source": {Conversation: "c", Number: 1},
		"AsOf":         {Conversation: "c", AsOf: -1},
	} {
		if err := e.Check(); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	long := Envelope{Conversation: strings.Repeat("x", 513)}
	if long.Check() == nil {
		t.Error("a conversation of 513 bytes passed")
	}
	bad := Envelope{Conversation: "c\xff"}
	if bad.Check() == nil {
		t.Error("a conversation that is no UTF-8 passed: protobuf and JSON cannot carry it")
	}
}

func TestDigestTellsItsPartsApart(t *testing.T) {
	seen := map[string]string{}
	for _, parts := range [][3]string{
		{"ab", "c", ""}, {"a", "bc", ""}, {"abc", "", ""}, {"", "abc", ""}, {"ab", "", "c"}, {"a", "b", "c"}, {"", "", "abc"},
	} {
		d := Digest(parts[0], []byte(parts[1]), parts[2])
		if other, ok := seen[d]; ok {
			t.Errorf("%q and %s have one digest", parts, other)
		}
		seen[d] = fmt.Sprintf("%q", parts)
	}
}

func FuzzHeaders(f *testing.F) {
	f.Add("c", `["m"]`, "1 s", "2", "n")
	f.Fuzz(func(t *testing.T, conversation, inbound, order, asOf, nonce string) {
		e, ok, err := FromHeaders(map[string]string{
			HeaderConversation: conversation, HeaderInbound: inbound, HeaderOrder: order, HeaderAsOf: asOf, HeaderNonce: nonce,
		})
		if err != nil || !ok {
			return
		}
		h, err := e.Headers()
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		again, _, err := FromHeaders(h)
		if err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
		if diff := cmp.Diff(e, again, cmpopts.EquateEmpty()); diff != "" {
			t.Error(diff)
		}
	})
}
