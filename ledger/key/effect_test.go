package key

import (
	"crypto/sha256"
	"math"
	"math/big"
	"os"
	"strings"
	"testing"
)

type effect struct {
	namespace, conversation, intent string
	key                             Key
}

func (e effect) id() string { return EffectID(e.namespace, e.conversation, e.intent, e.key) }

var frozen = []struct {
	about string
	effect
}{
	{"the example of the package comment", effect{"", "thread-7", "reply", ID("m1")}},
	{"another namespace", effect{"shop", "thread-7", "reply", ID("m1")}},
	{"another conversation", effect{"", "thread-8", "reply", ID("m1")}},
	{"another intent", effect{"", "thread-7", "tag", ID("m1")}},
	{"a pair is not an id", effect{"", "thread-7", "reply", New("message", "m1")}},
	{"refund of one order line", effect{"shop", "thread-7", "refund", New("order", "A", "line", 1)}},
	{"refund of the next order line", effect{"shop", "thread-7", "refund", New("order", "A", "line", 2)}},
	{"charge with the fields of the refund", effect{"shop", "thread-7", "charge", New("order", "A", "line", 1)}},
	{"the line as text", effect{"shop", "thread-7", "refund", New("order", "A", "line", "1")}},
	{"bools", effect{"shop", "thread-7", "tag", New("a", true, "b", false)}},
	{"a bool as text", effect{"shop", "thread-7", "tag", New("a", "true", "b", "false")}},
	{"the extremes of integers", effect{"", "c", "i", New("min", int64(math.MinInt64), "most", 1<<53, "least", -1<<53, "big", uint64(1<<63), "zero", 0)}},
	{"control characters, quotes, separators", effect{"\x00", "\"\\/\b\f\n\r\t\x1f\x7f", ",", ID("][\"},{:")}},
	{"text beyond ASCII, unnormalized", effect{"é", "e\u0301", "中文", New("😀", "\u2028\u2029", "\ue000", "<&>")}},
	{"the longest names", effect{strings.Repeat("n", 512), strings.Repeat("c", MaxConversation), strings.Repeat("i", MaxIntent), ID(strings.Repeat("k", MaxKey-2))}},
}

func TestEffectIDsNeverChange(t *testing.T) {
	golden, err := os.ReadFile("testdata/effects.golden")
	if err != nil {
		t.Fatal(err)
	}
	paragraphs := strings.Split(strings.TrimSpace(string(golden)), "\n\n")[1:] // the first explains
	if len(paragraphs) != len(frozen) {
		t.Errorf("%d effects in the golden file, %d in the test", len(paragraphs), len(frozen))
	}
	for i, f := range frozen {
		hashed := appendEffect(nil, f.namespace, f.conversation, f.intent, f.key)
		got := strings.Join([]string{f.about, string(hashed), f.id(), IdempotencyKey(f.id())}, "\n")
		if i >= len(paragraphs) {
			t.Errorf("not in the golden file:\n\n%s", got)
		} else if got != paragraphs[i] {
			t.Errorf("an effect got another id: what was done would be done again.\nhave:\n%s\n\nwant:\n%s", got, paragraphs[i])
		}
	}
}

// The package comment tells other languages how to compute an id; this follows
// it step by step, by other means than EffectID.
func TestEffectIDsFollowThePackageComment(t *testing.T) {
	for _, f := range frozen {
		names, err := CanonicalValue([]any{"fencedrun/1", f.namespace, f.conversation, f.intent, "KEY"})
		if err != nil {
			t.Fatal(err)
		}
		hashed := strings.TrimSuffix(string(names), `"KEY"]`) + f.key.Canonical() + "]"
		if canonical, err := Canonicalize([]byte(hashed)); err != nil || string(canonical) != hashed {
			t.Errorf("%s: %s is not canonical: %s, %v", f.about, hashed, canonical, err)
		}
		sum := sha256.Sum256([]byte(hashed))
		want := new(big.Int).SetBytes(sum[:25]).Text(32)
		want = strings.Repeat("0", 40-len(want)) + want
		if got := f.id(); got != want {
			t.Errorf("%s: id %s, want %s", f.about, got, want)
		}
	}
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	example := frozen[0]
	for _, line := range []string{
		string(appendEffect(nil, example.namespace, example.conversation, example.intent, example.key)),
		example.id(),
		IdempotencyKey(example.id()),
	} {
		if !strings.Contains(string(doc), "//\t"+line+"\n") {
			t.Errorf("the package comment lacks the line %s", line)
		}
	}
}

func TestDifferentEffectsNeverShareAnID(t *testing.T) {
	nasty := []string{"a", `"`, "\x00", `","`, `\`, "1", "b", "ab", "true", "null", `\u0000`, `"]`, "{", `{"a":1}`, "\ud7ff", "\ue000", "😀", `\ud83d\ude00`, "e\u0301", "é", "a\x00b"}
	keys := []Key{New("a", 1), New("a", "1"), New("a", true), New("a", "true"), New("a", false), New("a", -1), New("1", 1),
		New("a", "b", "b", "a"), New("a", "a", "b", "b"), New("a", `b","b":"a`), New(`a":"b","b`, "a"), New("a", 1, "b", 1), New("ab", 1)}
	for _, s := range nasty {
		keys = append(keys, ID(s), New("a", s), New(s, "x"))
	}
	seen := make(map[string]effect)
	unique := make(map[effect]bool)
	for _, namespace := range append(nasty[:4:4], "") {
		for _, conversation := range nasty[:5] {
			for _, intent := range nasty {
				for _, k := range keys {
					e := effect{namespace, conversation, intent, k}
					if unique[e] {
						continue // two ways to write one key
					}
					unique[e] = true
					id := e.id()
					if other, taken := seen[id]; taken {
						t.Fatalf("%v and %v share the id %s", e, other, id)
					}
					seen[id] = e
				}
			}
		}
	}
}

func TestIdempotencyKeysFitEveryProvider(t *testing.T) {
	for _, f := range frozen {
		k := IdempotencyKey(f.id())
		if len(k) != 44 { // rule S6.4 allows 255, Adyen 64, Square 45
			t.Errorf("%s: %d characters", k, len(k))
		}
		if strings.Trim(k, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
			t.Errorf("%s holds characters that a provider may refuse", k)
		}
		if id, ok := EffectOf(k); !ok || id != f.id() {
			t.Errorf("EffectOf(%s) = %s, %v, want the effect that it was made for", k, id, ok)
		}
	}
}

func TestForeignIdempotencyKeysBelongToNoEffect(t *testing.T) {
	id := frozen[0].id()
	for _, k := range []string{"", "fr1_", id, "fr2_" + id, "fr1_" + id[1:], "fr1_" + id + "0", "fr1_" + id[1:] + "w", "fr1_" + strings.ToUpper(id), "FR1_" + id} {
		if got, ok := EffectOf(k); ok || got != "" {
			t.Errorf("EffectOf(%q) = %q, %v", k, got, ok)
		}
	}
}

func TestEffectsThatCannotBeToldApartHaveNoID(t *testing.T) {
	for name, e := range map[string]effect{
		"key is empty": {"n", "c", "i", Key{}},
		`"amount"`:     {"n", "c", "i", New("amount", 1.5)},
		"namespace":    {"\xff", "c", "i", ID("m1")},
		"conversation": {"n", "\xff", "i", ID("m1")},
		"intent":       {"n", "c", "\xed\xa0\x80", ID("m1")},
	} {
		func() {
			defer func() {
				if message, ok := recover().(string); !ok || !strings.Contains(message, name) {
					t.Errorf("recovered %q, want a panic that names %s", message, name)
				}
			}()
			t.Errorf("%s: id %s", name, e.id())
		}()
	}
}
