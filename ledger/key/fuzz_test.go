package key

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
	"unicode/utf8"
)

// What can be decoded to what went in was injective.
func FuzzEffectEncodingIsReversible(f *testing.F) {
	f.Add("", "thread-7", "reply", "m1")
	f.Add("\x00", `","`, `"]`, `\ud800`)
	f.Add("\xff", "\u2028", "{", "😀\ue000")
	f.Fuzz(func(t *testing.T, namespace, conversation, intent, id string) {
		k := ID(id)
		if fine := id != "" && utf8.ValidString(id) && len(id) < MaxKey/6; fine && k.Err() != nil {
			t.Fatal(k.Err())
		}
		if k.Err() != nil {
			return
		}
		for _, name := range []string{namespace, conversation, intent} {
			if !utf8.ValidString(name) {
				return
			}
		}
		hashed := appendEffect(nil, namespace, conversation, intent, k)
		var got []string
		if err := json.Unmarshal(hashed, &got); err != nil {
			t.Fatal(err)
		}
		if want := []string{"fencedrun/1", namespace, conversation, intent, id}; !reflect.DeepEqual(got, want) {
			t.Fatalf("%s decodes to %q, want %q", hashed, got, want)
		}
		if canonical, err := canonicalize(hashed); err == nil && !bytes.Equal(canonical, hashed) {
			t.Fatalf("%s is not canonical: %s", hashed, canonical)
		}
	})
}

func FuzzKeysAreCanonicalAndReversible(f *testing.F) {
	f.Add("order", "A", "line", int64(2), "urgent", true)
	f.Add("\ue000", "\x00", "😀", int64(-1<<53), "\ud7ff", false)
	f.Add("\U00010000", "\x7f", "\uffff", int64(1<<53+2), "\U0010ffff", false)
	f.Add("a", "1", "ab", int64(1<<62), "a\x00", true)
	f.Fuzz(func(t *testing.T, n1, v1, n2 string, v2 int64, n3 string, v3 bool) {
		k := New(n1, v1, n2, v2, n3, v3)
		if other := New(n3, v3, n2, v2, n1, v1); (other.Err() == nil) != (k.Err() == nil) || k.Err() == nil && other != k {
			t.Fatalf("in another order %v is %v", k, other)
		}
		if k.Err() != nil {
			return
		}
		if reference, err := Canonicalize([]byte(k.Canonical())); err != nil || string(reference) != k.Canonical() {
			t.Fatalf("%s is not canonical: %s, %v", k.Canonical(), reference, err)
		}
		if again, err := Parse(k.Canonical()); err != nil || again != k {
			t.Fatalf("Parse(%s) = %v, %v", k.Canonical(), again, err)
		}
		var got map[string]any
		if err := json.Unmarshal([]byte(k.Canonical()), &got); err != nil {
			t.Fatal(err)
		}
		if want := map[string]any{n1: v1, n2: float64(v2), n3: v3}; int64(float64(v2)) != v2 || !reflect.DeepEqual(got, want) {
			t.Fatalf("%s decodes to %v, want %v", k.Canonical(), got, want)
		}
	})
}

func FuzzCanonicalFormMeansTheSame(f *testing.F) {
	f.Add([]byte(`{"b":[1,-0,1e21,4.50,null,true,"\u00e9\ud83d\ude00"],"a":{}}`))
	f.Add([]byte(`[9007199254740993]`))
	f.Add([]byte(`{"a":1,"a":2}`))
	f.Add([]byte("\"\xff\""))
	f.Add([]byte(`[1e-400, 999999999999999900000]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		canonical, err := Canonicalize(text)
		if err != nil {
			return
		}
		if again, err := Canonicalize(canonical); err != nil || !bytes.Equal(again, canonical) {
			t.Fatalf("the canonical form %s is not stable: %s, %v", canonical, again, err)
		}
		var got, want any
		if err := json.Unmarshal(canonical, &got); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, &want); err != nil {
			t.Fatalf("%s passed the gate: %v", text, err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%s became %s", text, canonical)
		}
		if value, err := CanonicalValue(want); err != nil || !bytes.Equal(value, canonical) {
			t.Fatalf("%s as a Go value: %s, %v, want %s", text, value, err, canonical)
		}
	})
}
