package redisledger

import (
	"bytes"
	"cmp"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/quick"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/ledger"
)

// Frozen: what is stored is found under these names. A failure here is a new format.
func TestNamesAreFrozen(t *testing.T) {
	s := &Store{config: Config{Prefix: "p"}}
	for name, want := range map[string]string{
		"":                   "p:{197}:c:",
		"a":                  "p:{237}:c:a",
		"0:/support-4711":    "p:{113}:c:0:/support-4711",
		"{x}":                "p:{161}:c:{x}",
		"}\x00\xff{":         "p:{225}:c:}\x00\xff{",
		"6:tenant/ticket 17": "p:{177}:c:6:tenant/ticket 17",
	} {
		if got := s.key(bucketOf(name), 'c', name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
	if got := s.indexKey(7); got != "p:{7}:i" {
		t.Error(got)
	}
	if got := s.entryKey("a"); got != "p:{237}:d:a" {
		t.Error(got)
	}
	row := ledger.NewRow("k", fence.Index{Open: fence.OpenInbound, At: 5, Landed: 1 << 60, Due: 7}, []byte("body"))
	value, err := rowValue(row)
	if want := "\x02\x80\x00\x00\x00\x00\x00\x00\x05\x7f\xff\xff\xff\xff\xff\xff\xfa\x90\x00\x00\x00\x00\x00\x00\x00\x80\x00\x00\x00\x00\x00\x00\x07body"; err != nil || string(value) != want {
		t.Errorf("row: %q, %v", value, err)
	}
	if got := string(stateValue(7, "no", "tag")); got != "\x80\x00\x00\x00\x00\x00\x00\x07\x02notag" {
		t.Errorf("state: %q", got)
	}
	if got := entryValue(settled, "no", "c"); got != "c\x02noc" {
		t.Errorf("entry: %q", got)
	}
	if got := tombstoneValue("no", 7, []byte("x")); got != "t\x02no\x80\x00\x00\x00\x00\x00\x00\x07x" {
		t.Errorf("tombstone: %q", got)
	}
}

func TestNamesSpreadOverAllBuckets(t *testing.T) {
	var n [buckets]int
	for i := range 256 * 100 {
		n[bucketOf("0:/conversation-"+strings.Repeat("x", i%7)+string(rune('a'+i%26))+sorting(int64(i)))]++
	}
	if least, most := slices.Min(n[:]), slices.Max(n[:]); least < 50 || most > 170 {
		t.Errorf("between %d and %d names in a bucket, want about 100", least, most)
	}
}

func TestWrittenNumbersAndNamesSortAsTheyDo(t *testing.T) {
	numbers := []int64{math.MinInt64, -5, -1, 0, 1, 2, 255, 256, 1 << 40, 1<<53 + 1, 1 << 60, math.MaxInt64}
	for i, n := range numbers {
		if sorted(sorting(n)) != n || i > 0 && sorting(numbers[i-1]) >= sorting(n) {
			t.Errorf("%d is written as %q", n, sorting(n))
		}
	}
	if err := quick.Check(func(a, b, restA, restB []byte) bool {
		x, y := ordered(string(a))+string(restA), ordered(string(b))+string(restB)
		want := cmp.Or(bytes.Compare(a, b), bytes.Compare(restA, restB))
		name, rest, err := unordered(x)
		return strings.Compare(x, y) == want && err == nil && name == string(a) && rest == string(restA)
	}, &quick.Config{MaxCount: 20_000}); err != nil {
		t.Error(err)
	}
	for _, pair := range [][2]string{{"a", "a\x00"}, {"a\x00", "a\x00\x00"}, {"a\x00\xff", "a\x01"}, {"", "\x00"}, {"a\x00z", "ab"}} {
		if ordered(pair[0]) >= ordered(pair[1]) {
			t.Errorf("%q does not come before %q", pair[0], pair[1])
		}
	}
}

func TestForeignValuesAreErrors(t *testing.T) {
	for _, s := range []string{"", "x", "c", "t\x00", "t\x02no1234567", "c\x05ab", "z\x00abc"} {
		if _, err := homeOf(s); err == nil {
			t.Errorf("entry %q was read", s)
		}
	}
	for _, s := range []string{"", "12345678", "12345678\x05abcd"} {
		if _, _, err := stateOf(s); err == nil {
			t.Errorf("state %q was read", s)
		}
	}
	if _, err := rowOf("k", strings.Repeat("x", indexSize-1)); err == nil {
		t.Error("a short row was read")
	}
	for _, s := range []string{"", "\x05abc", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"} {
		if _, _, err := leaseOf(s); err == nil {
			t.Errorf("lease %q was read", s)
		}
	}
	for _, s := range []string{"", "abc", "a\x00", "a\x00\xff"} {
		if _, _, err := unordered(s); err == nil {
			t.Errorf("name %q was read", s)
		}
	}
}
