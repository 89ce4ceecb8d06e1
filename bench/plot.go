package main

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"math"
	"os"
	"strings"
)

// plot draws what matters of the report: what an effect costs in terms of the floor, and how
// many of them a second there are.
func (r *report) plot(path string) error {
	p := picture{y: 40}
	p.title("One at a time: p50, and p90 as the thin line, in terms of INSERT, then UPDATE (1.00)")
	floor := r.variants[0].at(0.5)
	for _, name := range []string{
		r.variants[0].name, "INSERT, then UPDATE not flushed", "Once", "Once, FlushAll", "whole job", "replay", "SELECT by primary key",
		"Once, 10 settled", "Once, 10,000 settled",
	} {
		if v := r.variant(name); v != nil && floor > 0 {
			p.bar(name, duration(v.at(0.5)), v.at(0.5)/floor, v.at(0.9)/floor, 3)
		}
	}
	p.marks(3)

	p.title("Side by side: operations a second, in terms of the fastest of its group")
	for _, group := range [][]string{{floorBlock, "INSERT, then UPDATE not flushed", "Once"}, {dbosBlock, "job of 10 effects"}} {
		for _, workers := range []int{1, 8, 32} {
			most := 0.0
			for _, name := range group {
				if b := r.block(name, workers); b != nil {
					most = max(most, b.perSecond.at(0.5))
				}
			}
			for _, name := range group {
				if b := r.block(name, workers); b != nil && most > 0 {
					p.bar(b.title(), fmt.Sprintf("%.0f/s", b.perSecond.at(0.5)), b.perSecond.at(0.5)/most, 0, 1)
				}
			}
			p.y += 8
		}
	}
	return os.WriteFile(path, p.svg(), 0o644) //nolint:gosec // a page of the documentation is for everybody
}

// picture is a column of horizontal bars.
type picture struct {
	body bytes.Buffer
	y    float64 // where the next thing goes
	top  float64 // where the current bars began
}

const (
	width       = 860.0
	left, right = 300.0, 90.0 // for labels and numbers
	step0       = 22.0        // from bar to bar
)

func (p *picture) title(text string) {
	p.text(16, p.y, "start", "title", text)
	p.y += 16
	p.top = p.y
}

// bar draws one of value, with a thin line up to the whisker, on a scale to most.
func (p *picture) bar(label, number string, value, whisker, most float64) {
	scale := func(v float64) float64 { return math.Min(v/most, 1) * (width - left - right) }
	class := "ours"
	for _, others := range []string{"INSERT", "SELECT", "DBOS"} {
		if strings.HasPrefix(label, others) {
			class = "theirs"
		}
	}
	p.text(left-8, p.y+13, "end", "label", label)
	fmt.Fprintf(&p.body, `<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="14"/>`+"\n", class, left, p.y+2, scale(value))
	end := scale(value)
	if whisker > value {
		end = scale(whisker)
		fmt.Fprintf(&p.body, `<line class="whisker" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`+"\n", left+scale(value), p.y+9, left+end, p.y+9)
	}
	p.text(left+end+6, p.y+13, "start", "label", number)
	p.y += step0
}

// marks draws a line at each whole number up to most behind the bars since the title.
func (p *picture) marks(most int) {
	for i := 1; i <= most; i++ {
		x := left + float64(i)/float64(most)*(width-left-right)
		fmt.Fprintf(&p.body, `<line class="mark" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`+"\n", x, p.top, x, p.y)
		p.text(x, p.y+12, "middle", "label", fmt.Sprint(i))
	}
	p.y += 48
}

func (p *picture) text(x, y float64, anchor, class, text string) {
	fmt.Fprintf(&p.body, `<text class="%s" x="%.1f" y="%.1f" text-anchor="%s">`, class, x, y, anchor)
	_ = xml.EscapeText(&p.body, []byte(text)) // it writes to memory
	p.body.WriteString("</text>\n")
}

func (p *picture) svg() []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" viewBox="0 0 %.0f %.0f">
<style>
text { font-family: system-ui, sans-serif; fill: #1f2328 }
.title { font-size: 14px; font-weight: 600 }
.label { font-size: 12px }
.theirs { fill: #8c959f }
.ours { fill: #0969da }
.whisker { stroke: #1f2328; stroke-width: 1.5 }
.mark { stroke: #1f2328; stroke-opacity: 0.25; stroke-dasharray: 3 3 }
</style>
<rect width="100%%" height="100%%" fill="#ffffff"/>
`, width, p.y+8, width, p.y+8)
	out.Write(p.body.Bytes())
	out.WriteString("</svg>\n")
	return out.Bytes()
}
