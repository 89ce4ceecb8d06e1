package key

import (
	"math"
	"strings"
	"testing"
)

type (
	orderID string
	line    uint16
	urgent  bool
)

// String must not be asked: a key that depends on a method changes with it.
func (line) String() string { return "a line" }

func TestKeysHaveOneCanonicalForm(t *testing.T) {
	for _, test := range []struct {
		key  Key
		want string
	}{
		{ID("m1"), `"m1"`},
		{ID("\x00\"\\\n\u2028\u007f<é😀"), `"\u0000\"\\\n` + "\u2028\u007f<é😀" + `"`},
		{New("order", "A", "line", 2), `{"line":2,"order":"A"}`},
		{New("line", 2, "order", "A"), `{"line":2,"order":"A"}`},
		{New("message", "m1"), `{"message":"m1"}`},
		{New("n", 1), `{"n":1}`},
		{New("n", "1"), `{"n":"1"}`},
		{New("n", true), `{"n":true}`},
		{New("n", "true"), `{"n":"true"}`},
		{New("n", false), `{"n":false}`},
		{New("n", 0), `{"n":0}`},
		{New("o", orderID("A"), "l", line(2), "u", urgent(true)), `{"l":2,"o":"A","u":true}`},
		{New("a", int8(-8), "b", int16(-16), "c", int32(-32), "d", int64(-64)), `{"a":-8,"b":-16,"c":-32,"d":-64}`},
		{New("a", uint(1), "b", uint8(8), "c", uint16(16), "d", uint32(32), "e", uint64(64)), `{"a":1,"b":8,"c":16,"d":32,"e":64}`},
		{New("n", 1<<53), `{"n":9007199254740992}`},
		{New("n", -1<<53), `{"n":-9007199254740992}`},
		{New("n", 1<<53+2), `{"n":9007199254740994}`},
		{New("n", uint64(1<<63)), `{"n":9223372036854776000}`},
		{New("n", int64(math.MinInt64)), `{"n":-9223372036854776000}`},
		// By UTF-16 code units an emoji sorts before U+E000.
		{New("\ue000", 1, "😀", 2), `{"😀":2,"` + "\ue000" + `":1}`},
		{New("9", 1, "10", 2), `{"10":2,"9":1}`},
	} {
		if err := test.key.Err(); err != nil {
			t.Errorf("want %s, have error %v", test.want, err)
			continue
		}
		if got := test.key.Canonical(); got != test.want {
			t.Errorf("canonical form %s, want %s", got, test.want)
		}
		if got := test.key.String(); got != test.want {
			t.Errorf("String %s, want %s", got, test.want)
		}
		if again, err := Parse(test.want); err != nil || again != test.key {
			t.Errorf("Parse(%s) = %v, %v, want the key that it was made of", test.want, again, err)
		}
		if reference, err := Canonicalize([]byte(test.want)); err != nil || string(reference) != test.want {
			t.Errorf("%s is not what RFC 8785 makes of it: %s, %v", test.want, reference, err)
		}
	}
}

func TestKeysOfTheSameObjectAreEqual(t *testing.T) {
	if a, b := New("order", "A", "line", 2), New("line", uint8(2), "order", orderID("A")); a != b {
		t.Errorf("%v != %v", a, b)
	}
	if a, b := ID("1"), New("id", "1"); a == b {
		t.Errorf("a single string and a single pair are one key: %v", a)
	}
	if a, b := New("amount", "0.1"), New("amount", "0.10"); a == b {
		t.Errorf("texts are compared as numbers: %v", a)
	}
}

func TestSingleIDIsTheStringThatTheKeyIs(t *testing.T) {
	for _, id := range []string{"m1", "\x00\"\\/\n", "é😀\u2028", "null", `{"a":1}`, strings.Repeat("x", MaxKey-2)} {
		if got, ok := ID(id).SingleID(); !ok || got != id {
			t.Errorf("ID(%q).SingleID() = %q, %v", id, got, ok)
		}
	}
	for _, k := range []Key{New("message", "m1"), {}, ID(""), New("a", 1.5)} {
		if got, ok := k.SingleID(); ok || got != "" {
			t.Errorf("(%v).SingleID() = %q, %v", k, got, ok)
		}
	}
}

func TestParseReadsWhatPeopleWrite(t *testing.T) {
	for text, want := range map[string]Key{
		` "m\u0031" `:                          ID("m1"),
		` { "order" : "A", "line" : 2.0 } `:    New("order", "A", "line", 2),
		`{"n": 9223372036854775808}`:           New("n", uint64(1<<63)),
		`{"n": -9223372036854775808}`:          New("n", int64(math.MinInt64)),
		`{"n": 18446744073709549568, "b":0e9}`: New("n", uint64(18446744073709549568), "b", 0),
	} {
		if got, err := Parse(text); err != nil || got != want {
			t.Errorf("Parse(%s) = %v, %v, want %v", text, got, err, want)
		}
	}
}
