package key

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"
)

// secret stands for what customers wrote; no error may show it.
const secret = "4111-1111"

func TestBadKeysNameTheOffendingPart(t *testing.T) {
	number := 1
	for _, test := range []struct {
		key  Key
		want string
	}{
		{Key{}, "fencedrun: key is empty"},
		{New(), "fencedrun: key is empty"},
		{ID(""), "fencedrun: key: the id is empty"},
		{ID(secret + "\xff"), "fencedrun: key: the id is not valid UTF-8"},
		{ID(secret + "\xed\xa0\x80"), "fencedrun: key: the id is not valid UTF-8"},
		{ID(strings.Repeat("x", MaxKey-1)), "fencedrun: key: the canonical form is 1025 bytes, over the limit of 1024"},
		{ID(strings.Repeat("\x00", 171)), "fencedrun: key: the canonical form is 1028 bytes, over the limit of 1024"},
		{New("a", strings.Repeat("x", MaxKey-7)), "fencedrun: key: the canonical form is 1025 bytes, over the limit of 1024"},
		{New("order"), `fencedrun: key: name "order" has no value`},
		{New("order", secret, "line"), `fencedrun: key: name "line" has no value`},
		{New("order", secret, "order", 2), `fencedrun: key: name "order" is given twice`},
		{New("b", 1, "order", 2, "a", 3, "order", secret), `fencedrun: key: name "order" is given twice`},
		{New("order", 1, 2, 3), "fencedrun: key: name 2 is of type int, not a string"},
		{New(nil, 1), "fencedrun: key: name 1 is nil, not a string"},
		{New(orderID("order"), 1), "fencedrun: key: name 1 is of type key.orderID, not a string"},
		{New("", secret), "fencedrun: key: name 1 is empty"},
		{New("a", secret, "\xff", 1), "fencedrun: key: name 2 is not valid UTF-8"},
		{New("order", ""), `fencedrun: key: the value of "order" is empty`},
		{New("order", orderID("")), `fencedrun: key: the value of "order" is empty`},
		{New("order", secret+"\xff"), `fencedrun: key: the value of "order" is not valid UTF-8`},
		{New("order", nil), `the value of "order" is nil, but keys hold strings, integers and bools only`},
		{New("amount", 4111.1111), `the value of "amount" is of type float64, but`},
		{New("amount", float32(1)), `the value of "amount" is of type float32, but`},
		{New("amount", complex(1, 1)), `the value of "amount" is of type complex128, but`},
		{New("amount", json.Number("4111")), `the value of "amount" is of type json.Number, but`},
		{New("at", time.Unix(0, 0)), `the value of "at" is of type time.Time, but`},
		{New("for", time.Second), `the value of "for" is of type time.Duration, but`},
		{New("o", struct{ ID string }{secret}), `the value of "o" is of type struct`},
		{New("o", []byte(secret)), `the value of "o" is of type []uint8, but`},
		{New("o", [4]byte{}), `the value of "o" is of type [4]uint8, but`},
		{New("o", map[string]any{}), `the value of "o" is of type map[string]interface {}, but`},
		{New("o", &number), `the value of "o" is of type *int, but`},
		{New("o", (*int)(nil)), `the value of "o" is of type *int, but`},
		{New("o", uintptr(1)), `the value of "o" is of type uintptr, but`},
		{New("o", ID("m1")), `the value of "o" is of type key.Key, but`},
		{New("n", 1<<53+1), `the value of "n" is an integer that a float64 cannot hold exactly`},
		{New("n", -1<<53-1), `the value of "n" is an integer that a float64 cannot hold exactly`},
		{New("n", uint64(1<<53+1)), `the value of "n" is an integer that a float64 cannot hold exactly`},
		{New("n", int64(math.MaxInt64)), `the value of "n" is an integer that a float64 cannot hold exactly`},
		{New("n", uint64(math.MaxUint64)), `the value of "n" is an integer that a float64 cannot hold exactly`},
		{New("n", math.MinInt64+1), `the value of "n" is an integer that a float64 cannot hold exactly`},
	} {
		err := test.key.Err()
		if err == nil {
			t.Errorf("%s is a key, want error %s", test.key, test.want)
			continue
		}
		checkMessage(t, err, test.want)
		if got := test.key.Canonical(); got != "" {
			t.Errorf("%v: canonical form %s", err, got)
		}
		if got := test.key.String(); !strings.Contains(got, err.Error()) {
			t.Errorf("String %s does not tell %v", got, err)
		}
	}
}

func TestParseRefusesWhatIsNoKey(t *testing.T) {
	for text, want := range map[string]string{
		``:                           "fencedrun: parse key: unexpected EOF at the top",
		`m1`:                         "fencedrun: parse key: invalid character 'm' at start of value at the top",
		`1`:                          "fencedrun: key: want a JSON string or a JSON object",
		`null`:                       "fencedrun: key: want a JSON string or a JSON object",
		`["4111-1111"]`:              "fencedrun: key: want a JSON string or a JSON object",
		`{}`:                         "fencedrun: key is empty",
		`""`:                         "the id is empty",
		`{"a":1,"a":2}`:              `"/a"`,
		`{"":1}`:                     "name 1 is empty",
		`{"a":""}`:                   `the value of "a" is empty`,
		`{"b":null,"a":null}`:        `the value of "a" is nil`,
		`{"a":1.5}`:                  `the value of "a" is of type float64`,
		`{"a":1e21}`:                 `the value of "a" is of type float64`,
		`{"a":18446744073709551616}`: `the value of "a" is of type float64`,
		`{"a":-9223372036854777856}`: `the value of "a" is of type float64`,
		`{"a":9007199254740993}`:     `"/a"`,
		`{"a":{"b":"4111-1111"}}`:    `the value of "a" is of type map[string]interface {}`,
	} {
		k, err := Parse(text)
		if err == nil {
			t.Errorf("Parse(%s) = %v, want error %s", text, k, want)
			continue
		}
		checkMessage(t, err, want)
	}
}

func TestNamesAreCheckedByFieldAndLimit(t *testing.T) {
	for _, test := range []struct {
		field, value string
		limit        int
		want         string // "": fine
	}{
		{"conversation", strings.Repeat("x", 512), MaxConversation, ""},
		{"conversation", "\x00\"{}é😀", MaxConversation, ""},
		{"conversation", "", MaxConversation, "fencedrun: conversation is empty"},
		{"conversation", strings.Repeat("x", 513), MaxConversation, "fencedrun: conversation is 513 bytes, over the limit of 512"},
		{"queue", strings.Repeat("é", 257), MaxQueue, "fencedrun: queue is 514 bytes, over the limit of 512"},
		{"id", strings.Repeat("x", 513), MaxJobID, "fencedrun: id is 513 bytes, over the limit of 512"},
		{"intent", strings.Repeat("x", 129), MaxIntent, "fencedrun: intent is 129 bytes, over the limit of 128"},
		{"intent", secret + "\xff", MaxIntent, "fencedrun: intent is not valid UTF-8"},
		{"intent", "\xed\xa0\x80", MaxIntent, "fencedrun: intent is not valid UTF-8"},
	} {
		err := ValidateName(test.field, test.value, test.limit)
		if test.want == "" {
			if err != nil {
				t.Errorf("%s %q: %v", test.field, test.value, err)
			}
			continue
		}
		if err == nil {
			t.Errorf("%s %q passed, want error %s", test.field, test.value, test.want)
			continue
		}
		checkMessage(t, err, test.want)
	}
}

func checkMessage(t *testing.T, err error, want string) {
	t.Helper()
	got := err.Error()
	if !strings.HasPrefix(got, "fencedrun: ") || strings.Count(got, "fencedrun: ") != 1 {
		t.Errorf("error %q is not wrapped once", got)
	}
	if !strings.Contains(got, want) {
		t.Errorf("error %q, want %q", got, want)
	}
	if strings.Contains(got, "4111") {
		t.Errorf("error %q shows a value", got)
	}
}
