package key

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"
)

func TestGateRefusesWhatReadersDisagreeAbout(t *testing.T) {
	for text, want := range map[string]string{
		"":                                    "unexpected EOF at the top",
		`{"a":`:                               `unexpected EOF at "/a"`,
		`{"a":{"b":"4111","b":"4111"}}`:       `duplicate object member name at "/a/b"`,
		`{"a":1,"\u0061":2}`:                  `duplicate object member name at "/a"`,
		`[{"__proto__":1,"__proto__":2}]`:     `duplicate object member name at "/0/__proto__"`,
		"{\"a\":[\"4111\xff\"]}":              `invalid UTF-8 at "/a/0"`,
		"{\"a\":{\"\xff\":1}}":                `invalid UTF-8 at "/a"`,
		"[\"\xed\xa0\x80\"]":                  `invalid UTF-8 at "/0"`,
		`{"a":["\ud8004111"]}`:                `half of a surrogate pair at "/a/0"`,
		`{"a":"\udc00\ud800"}`:                `half of a surrogate pair at "/a"`,
		`{"a":{"\ud800":1}}`:                  `half of a surrogate pair at "/a"`,
		`{"a":NaN}`:                           `at "/a"`,
		`{"a":-Infinity}`:                     `at "/a"`,
		`{"a":1} {"a":1}`:                     "after top-level value at the top",
		`1 x`:                                 "after top-level value at the top",
		"\ufeff1":                             "at the top",
		`[1,]`:                                `at "/1"`,
		`[01]`:                                "at the top",
		`{"a~/b":[1,9007199254740993]}`:       `integer that a float64 cannot hold exactly (write it as a string) at "/a~0~1b/1"`,
		`{"a":-9007199254740993}`:             `integer that a float64 cannot hold exactly (write it as a string) at "/a"`,
		`9007199254740993`:                    "integer that a float64 cannot hold exactly (write it as a string) at the top",
		`[999999999999999900001]`:             `integer that a float64 cannot hold exactly (write it as a string) at "/0"`,
		`[1e400]`:                             `number out of the range of a float64 at "/0"`,
		`{"b":-1e400,"a":1}`:                  `number out of the range of a float64 at "/b"`,
		`[1` + strings.Repeat("0", 400) + `]`: `number out of the range of a float64 at "/0"`,
		`[0.5,{"a\\\"1e400":1e-400}]`:         `number out of the range of a float64 at "/1/a\\\"1e400"`,
		`"` + strings.Repeat("x", MaxParams-1) + `"`: "65537 bytes, over the limit of 65536",
	} {
		b, err := Canonicalize([]byte(text))
		if err == nil {
			t.Errorf("%.80q has the canonical form %s, want error %s", text, b, want)
			continue
		}
		checkMessage(t, err, want)
		if b, err := CanonicalValue(map[string]any{"in": json.RawMessage(text)}); text != "" && err == nil {
			t.Errorf("%.80q as json.RawMessage has the canonical form %s, want error %s", text, b, want)
		}
	}
}

func TestGateAcceptsWhatFloat64Holds(t *testing.T) {
	for text, want := range map[string]string{
		"9007199254740992":        "9007199254740992",
		"-9007199254740992":       "-9007199254740992",
		"9223372036854775808":     "9223372036854776000", // exact
		"9223372036854776000":     "9223372036854776000", // as RFC 8785 writes it
		"1180591620717411303424":  "1.1805916207174113e+21",
		"100000000000000000000":   "100000000000000000000",
		"123456789012345.6789012": "123456789012345.67",
		"-0":                      "0",
		"-0.0e400":                "0",
		"4.9e-324":                "5e-324",
		`"1e400"`:                 `"1e400"`,
		`{"1e400":"\\"}`:          `{"1e400":"\\"}`,
		`"` + strings.Repeat("x", MaxParams-2) + `"`: `"` + strings.Repeat("x", MaxParams-2) + `"`,
		strings.Repeat(" ", MaxParams) + "1":         "1",
	} {
		b, err := Canonicalize([]byte(text))
		if err != nil || string(b) != want {
			t.Errorf("%.80s: %.80s, %v, want %.80s", text, b, err, want)
		}
	}
}

func TestCanonicalizeLeavesItsArgumentAlone(t *testing.T) {
	text := []byte(` {"b":1, "a":1.0} `)
	if _, err := Canonicalize(text); err != nil {
		t.Fatal(err)
	}
	if string(text) != ` {"b":1, "a":1.0} ` {
		t.Errorf("the argument became %q", text)
	}
}

type money struct {
	Amount   int    `json:"amount"`
	Currency string `json:"currency,omitempty"`
	hidden   int
}

type marshals struct{ json string }

func (m marshals) MarshalJSON() ([]byte, error) {
	if m.json == "" {
		return nil, errBroken
	}
	return []byte(m.json), nil
}

var errBroken = errors.New("broken")

type loop struct {
	Next *loop `json:"next"`
}

func TestGoValuesHaveOneCanonicalForm(t *testing.T) {
	for _, test := range []struct {
		value any
		want  string
	}{
		{nil, `null`},
		{money{Amount: 392, Currency: "EUR", hidden: 1}, `{"amount":392,"currency":"EUR"}`},
		{&money{}, `{"amount":0}`},
		{map[string]any{"b": 1, "a": []any{nil, true, "x"}}, `{"a":[null,true,"x"],"b":1}`},
		{map[int]string{9: "a", 10: "b"}, `{"10":"b","9":"a"}`},
		{json.RawMessage(` {"b":1, "a":1.0} `), `{"a":1,"b":1}`},
		{json.RawMessage(nil), `null`},
		{struct{ P json.RawMessage }{json.RawMessage(`{"b":1,"a":2}`)}, `{"P":{"a":2,"b":1}}`},
		{marshals{`{"b":1,"a":2}`}, `{"a":2,"b":1}`},
		{[]string(nil), `[]`},
		{map[string]int(nil), `{}`},
		{(*money)(nil), `null`},
		{[]byte("hi"), `"aGk="`},
		{time.Unix(0, 0).UTC(), `"1970-01-01T00:00:00Z"`},
		{[]any{0.1, float32(0.1), 1e21, 1.0, math.Copysign(0, -1)}, `[0.1,0.1,1e+21,1,0]`},
		{"<&>\u2028", "\"<&>\u2028\""},
		{[]json.Number{"1.50", "12e1", "-0"}, `[1.5,120,0]`},
		{map[json.Number]json.Number{"5": "6"}, `{"5":6}`},
		{struct {
			N json.Number `json:",string"`
		}{"5"}, `{"N":"5"}`},
		{[]any{uint64(1 << 63), int64(1 << 53)}, `[9223372036854776000,9007199254740992]`},
	} {
		b, err := CanonicalValue(test.value)
		if err != nil || string(b) != test.want {
			t.Errorf("%T %v: %s, %v, want %s", test.value, test.value, b, err, test.want)
		}
	}
}

func TestBadGoValuesNameTheirPlace(t *testing.T) {
	endless := &loop{}
	endless.Next = endless
	for _, test := range []struct {
		value any
		want  string
	}{
		{map[string]any{"a": []any{1, math.NaN()}}, `NaN at "/a/1"`},
		{map[string]float64{"a": math.Inf(-1)}, `-Inf at "/a"`},
		{struct {
			F float32 `json:"rate"`
		}{float32(math.Inf(1))}, `+Inf at "/rate"`},
		{math.NaN(), "NaN at the top"},
		{map[string]any{"a": "4111\xff"}, `invalid UTF-8 at "/a"`},
		{money{Currency: "\xff"}, `invalid UTF-8 at "/currency"`},
		{map[string]any{"\xff": 1}, "invalid UTF-8 at the top"},
		{[]any{int64(1<<53 + 1)}, `integer that a float64 cannot hold exactly (write it as a string) at "/0"`},
		{map[string]any{"a": uint64(math.MaxUint64)}, `integer that a float64 cannot hold exactly (write it as a string) at "/a"`},
		{map[string]any{"a": marshals{`[{"b":1,"b":2}]`}}, `duplicate object member name at "/a/0/b"`},
		{map[string]any{"a": marshals{`9007199254740993`}}, `integer that a float64 cannot hold exactly (write it as a string) at "/a"`},
		{map[string]any{"a": marshals{}}, `broken at "/a"`},
		{map[string]any{"a": json.RawMessage(`{"b":`)}, `at "/a/b"`},
		{map[string]any{"a": json.RawMessage("\"\xff\"")}, `invalid UTF-8 at "/a"`},
		{map[string]any{"a": json.Number("")}, `json.Number that is not a number at "/a"`},
		{map[string]any{"a": json.Number(`"4111"`)}, `json.Number that is not a number at "/a"`},
		{map[string]any{"a": json.Number("1e400")}, `number out of the range of a float64 at "/a"`},
		{map[string]any{"a": time.Second}, `at "/a"`},
		{map[string]any{"a": func() {}}, `at "/a"`},
		{map[string]any{"b": func() {}, "a": func() {}, "c": func() {}}, `at "/a"`},
		{endless, `at "/next/next`},
		{strings.Repeat("x", MaxParams), "65538 bytes, over the limit of 65536"},
	} {
		b, err := CanonicalValue(test.value)
		if err == nil {
			t.Errorf("%T has the canonical form %.80s, want error %s", test.value, b, test.want)
			continue
		}
		checkMessage(t, err, test.want)
		if len(err.Error()) > 500 {
			t.Errorf("%T: the error is %d bytes long", test.value, len(err.Error()))
		}
	}
	if _, err := CanonicalValue([]any{marshals{}}); !errors.Is(err, errBroken) {
		t.Errorf("the error of MarshalJSON is hidden: %v", err)
	}
}
