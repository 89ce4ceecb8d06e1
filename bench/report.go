package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
)

// report is what was measured.
type report struct {
	variants []*variant
	blocks   []*block
	where    []string // the machine and the software
}

func (r *report) variant(name string) *variant {
	i := slices.IndexFunc(r.variants, func(v *variant) bool { return v.name == name })
	if i < 0 {
		return nil
	}
	return r.variants[i]
}

func (r *report) block(name string, workers int) *block {
	i := slices.IndexFunc(r.blocks, func(b *block) bool { return b.name == name && b.workers == workers })
	if i < 0 {
		return nil
	}
	return r.blocks[i]
}

// ratio is a variant's median over that of what it is compared with, 0 if with nothing.
func (r *report) ratio(v *variant) float64 {
	if base := r.variant(v.base); base != nil && base.at(0.5) > 0 {
		return v.at(0.5) / base.at(0.5)
	}
	return 0
}

func (r *report) blockRatio(b *block) float64 {
	if base := r.block(b.base, b.workers); base != nil && base.perSecond.at(0.5) > 0 {
		return b.perSecond.at(0.5) / base.perSecond.at(0.5)
	}
	return 0
}

// markdown writes the tables.
func (r *report) markdown(out io.Writer) error {
	var text bytes.Buffer
	t := table{out: tabwriter.NewWriter(&text, 0, 0, 1, ' ', 0)}
	t.row("one at a time", "what one is", "p50", "p90", "ratio of p50", "to", "target", "n")
	t.rule(8)
	for _, v := range r.variants {
		t.row(v.name, v.note, duration(v.at(0.5)), duration(v.at(0.9)), number(r.ratio(v)), r.to(v.name, v.base), v.target, fmt.Sprint(len(v.values)))
	}
	t.end()
	fmt.Fprintln(&text)
	t.row("side by side", "workers", "a second", "slowest, fastest second", "ratio", "to", "target", "p50 of one", "p99 of one", "client CPU of one", "n")
	t.rule(11)
	for _, b := range r.blocks {
		t.row(b.name, fmt.Sprint(b.workers), fmt.Sprintf("%.0f %s", b.perSecond.at(0.5), b.unit), fmt.Sprintf("%.0f, %.0f", b.perSecond.at(0), b.perSecond.at(1)),
			number(r.blockRatio(b)), r.to(b.name, b.base), b.target, duration(b.latency.at(0.5)), duration(b.latency.at(0.99)), duration(b.cpu.at(0.5)), fmt.Sprint(len(b.perSecond.values)))
	}
	t.end()
	fmt.Fprintln(&text)
	for _, line := range r.where {
		fmt.Fprintln(&text, "- "+line)
	}
	_, err := out.Write(text.Bytes())
	return err
}

func (r *report) to(name, base string) string {
	if base == name {
		return "itself"
	}
	return base
}

// table writes rows of Markdown with aligned columns.
type table struct{ out *tabwriter.Writer }

func (t *table) row(cells ...string) { fmt.Fprintln(t.out, "| "+strings.Join(cells, "\t| ")+"\t|") }

func (t *table) rule(columns int) { fmt.Fprintln(t.out, "|"+strings.Repeat("---\t|", columns)) }

func (t *table) end() { _ = t.out.Flush() } // it writes to memory

func number(ratio float64) string {
	if ratio == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f", ratio)
}

func duration(seconds float64) string {
	switch micros := seconds * 1e6; {
	case micros < 10:
		return fmt.Sprintf("%.1f µs", micros)
	case micros < 1000:
		return fmt.Sprintf("%.0f µs", micros)
	default:
		return fmt.Sprintf("%.2f ms", micros/1000)
	}
}

// The table in a document stands between these.
const tableBegin, tableEnd = "<!-- make bench writes this -->\n", "<!-- until here -->\n"

// writeInto replaces the tables in a document.
func (r *report) writeInto(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, ok := bytes.Cut(text, []byte(tableBegin))
	_, after, end := bytes.Cut(rest, []byte(tableEnd))
	if !ok || !end {
		return fmt.Errorf("bench: write %s: it has no place for the table: %q and %q", path, tableBegin, tableEnd)
	}
	var whole bytes.Buffer
	whole.Write(before)
	whole.WriteString(tableBegin + "\n")
	err = r.markdown(&whole)
	whole.WriteString("\n" + tableEnd)
	whole.Write(after)
	return errors.Join(err, os.WriteFile(path, whole.Bytes(), 0o644)) //nolint:gosec // a page of the documentation is for everybody
}
