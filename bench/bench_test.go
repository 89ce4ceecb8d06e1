package main

import (
	"context"
	"encoding/xml"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestPercentilesLieBetweenSamples(t *testing.T) {
	s := samples{[]float64{4, 1, 3, 2}}
	for p, want := range map[float64]float64{0: 1, 0.5: 2.5, 1: 4, 0.9: 3.7} {
		if got := s.at(p); got < want-1e-9 || got > want+1e-9 {
			t.Errorf("at(%v) is %v, want %v", p, got, want)
		}
	}
	if got := new(samples).at(0.5); got != 0 {
		t.Errorf("nothing's median is %v", got)
	}
}

func TestEveryRoundMeasuresEveryVariantAfterTheSameFlush(t *testing.T) {
	var told []string
	say := func(what string) func(context.Context) error {
		return func(context.Context) error { told = append(told, what); return nil }
	}
	variants := []*variant{
		{name: "a", prepare: say("prepare a"), op: say("a")},
		{name: "b", op: say("b"), per: 1000, own: func() time.Duration { return time.Second }},
	}
	flushes := 0
	flush := func(context.Context) error {
		flushes++
		told = append(told, "flush")
		return nil
	}
	if err := measure(t.Context(), rand.New(rand.NewPCG(1, 1)), variants, flush, 0); err != nil {
		t.Fatal(err)
	}
	if flushes != 2*(warmups+1) || len(variants[0].values) != 1 || len(variants[1].values) != 1 {
		t.Errorf("%d flushes, %d and %d samples", flushes, len(variants[0].values), len(variants[1].values))
	}
	text := strings.Join(told, " ")
	if strings.Count(text, "prepare a flush a") != warmups+1 || strings.Count(text, "flush b") != warmups+1 {
		t.Errorf("order: %s", text)
	}
	if !strings.Contains(text, "flush a flush b") || !strings.Contains(text, "flush b prepare a") {
		t.Errorf("nothing was shuffled: %s", text)
	}
	if got := variants[1].at(0.5); got != 0.001 {
		t.Errorf("a second for 1000 operations is %v s for each", got)
	}
}

func TestAWorkersErrorEndsTheMeasurement(t *testing.T) {
	bad := errors.New("bad")
	b := &block{name: "x", workers: 3, start: always(1, func(context.Context) error { return bad })}
	if err := b.once(t.Context()); !errors.Is(err, bad) {
		t.Errorf("got %v", err)
	}
}

func TestTheTableGoesIntoItsPlaceAndThePictureIsXML(t *testing.T) {
	dir := t.TempDir()
	doc, picture := filepath.Join(dir, "performance.md"), filepath.Join(dir, "performance.svg")
	if err := os.WriteFile(doc, []byte("before\n"+tableBegin+"old\n"+tableEnd+"after\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := report{
		variants: []*variant{
			{name: "INSERT, then UPDATE", base: "INSERT, then UPDATE", samples: samples{[]float64{0.002}}},
			{name: "Once", base: "INSERT, then UPDATE", samples: samples{[]float64{0.003}}},
		},
		blocks: []*block{
			{name: floorBlock, workers: 8, base: floorBlock, perSecond: samples{[]float64{100}}},
			{name: "Once", workers: 8, base: floorBlock, perSecond: samples{[]float64{90}}},
		},
		where: []string{"here <&>"},
	}
	for range 2 { // what was written can be written over
		if err := r.writeInto(doc); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(doc)
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(strings.Fields(string(text)), " ")
	for _, want := range []string{"before <!--", "| Once | | 3.00 ms | 3.00 ms | 1.50 | INSERT, then UPDATE |", "| Once | 8 | 90 | 90, 90 | 0.90 |", "--> after", "here <&>"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in %s", want, got)
		}
	}
	if strings.Contains(got, "old") {
		t.Errorf("the old table is still there: %s", got)
	}

	if err := r.plot(picture); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(picture)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	bars := 0
	for dec := xml.NewDecoder(file); ; {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if start, ok := token.(xml.StartElement); ok && start.Name.Local == "rect" {
			bars++
		}
	}
	if bars != 1+4 { // the background too
		t.Errorf("%d rectangles, want 5", bars)
	}
}
