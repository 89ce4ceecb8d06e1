package key

import (
	"encoding/json"
	"os"
	"testing"
)

func TestFingerprintsAgreeWithOtherLanguages(t *testing.T) {
	var vectors []struct {
		Payload json.RawMessage
		Hash    string
	}
	readVectors(t, "testdata/jcs-hashes.json", &vectors)
	for _, v := range vectors {
		canonical, err := Canonicalize(v.Payload)
		if err != nil {
			t.Errorf("%s: %v", v.Payload, err)
			continue
		}
		if got := Fingerprint(canonical); got != v.Hash {
			t.Errorf("%s: canonical form %s has the fingerprint %s, want %s", v.Payload, canonical, got, v.Hash)
		}
	}
}

func TestCanonicalFormAgreesWithOtherLanguages(t *testing.T) {
	var vectors []struct{ JSON, Canonical, SHA256 string }
	readVectors(t, "testdata/jcs-extra.json", &vectors)
	for _, v := range vectors {
		for _, text := range []string{v.JSON, v.Canonical, " \n" + v.JSON + "\t"} {
			canonical, err := Canonicalize([]byte(text))
			if err != nil {
				t.Errorf("%s: %v", text, err)
				continue
			}
			if string(canonical) != v.Canonical {
				t.Errorf("%s: canonical form %s, want %s", text, canonical, v.Canonical)
			}
			if got := Fingerprint(canonical); got != v.SHA256 {
				t.Errorf("%s: fingerprint %s, want %s", text, got, v.SHA256)
			}
		}
		canonical, err := CanonicalValue(json.RawMessage(v.JSON))
		if err != nil || string(canonical) != v.Canonical {
			t.Errorf("%s as json.RawMessage: %s, %v, want %s", v.JSON, canonical, err, v.Canonical)
		}
	}
}

func readVectors[T any](t *testing.T, file string, vectors *[]T) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, vectors); err != nil {
		t.Fatal(err)
	}
	if len(*vectors) == 0 {
		t.Fatalf("%s holds no vectors", file)
	}
}
