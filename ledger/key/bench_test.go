package key

import "testing"

var sink string

func BenchmarkID(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		sink = ID("wamid.HBgLMTU1NTU1NTU1NTUVAgASGBQzQTdD").Canonical()
	}
}

func BenchmarkNew(b *testing.B) {
	b.ReportAllocs()
	order, line := "A-17", 0
	for b.Loop() {
		line++
		sink = New("order", order, "line", line).Canonical()
	}
}

func BenchmarkEffectID(b *testing.B) {
	b.ReportAllocs()
	k := New("order", "A-17", "line", 2)
	for b.Loop() {
		sink = EffectID("shop", "conversation-7f3a9c1e-aaaa-bbbb-cccc-123456789012", "refund", k)
	}
}

func BenchmarkParamsFingerprint(b *testing.B) {
	b.ReportAllocs()
	params := map[string]any{"amount": 392, "currency": "EUR", "order": "A-17"}
	for b.Loop() {
		canonical, err := CanonicalValue(params)
		if err != nil {
			b.Fatal(err)
		}
		sink = Fingerprint(canonical)
	}
}

// The id of an effect is computed on the way to every claim and every replay.
func TestEffectIDAllocatesOnlyItsResult(t *testing.T) {
	k := New("order", "A-17", "line", 2)
	if n := testing.AllocsPerRun(100, func() { sink = EffectID("shop", "thread-7", "refund", k) }); n > 1 {
		t.Errorf("%v allocations", n)
	}
}
