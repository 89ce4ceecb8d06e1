package sim

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencedrun/fencedrun/internal/sabotage"
)

// plantedWorld returns the shortened world of a rule that is switched off.
func plantedWorld(t *testing.T, e *Engine, name sabotage.Name) (Config, Result) {
	t.Helper()
	c := e.Noticed(name, 3000)
	if c.Seed == 0 {
		t.Fatalf("%s is not noticed", name)
	}
	cfg := Focused(name).Vary(c.Seed)
	short := e.Shrink(cfg, c.Result, time.Minute)
	return cfg, e.Replay(cfg, short.Choices, true)
}

// element is what the page's structure is judged by.
type element struct {
	name, class, id, text string
}

// elements parses a page as strictly as XML, and fails on anything that would be loaded.
func elements(t *testing.T, page []byte) []element {
	t.Helper()
	dec := xml.NewDecoder(bytes.NewReader(page))
	dec.Strict = true
	var list []element
	open := []int{}
	for {
		tok, err := dec.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("the page is not well formed: %v", err)
		}
		switch tok := tok.(type) {
		case xml.StartElement:
			el := element{name: tok.Name.Local}
			for _, a := range tok.Attr {
				switch a.Name.Local {
				case "class":
					el.class = a.Value
				case "id":
					el.id = a.Value
				case "src", "srcset", "href", "data", "action", "poster", "background":
					t.Errorf("<%s %s=%q> loads something", el.name, a.Name.Local, a.Value)
				}
				if strings.HasPrefix(a.Name.Local, "on") {
					t.Errorf("<%s %s> is a script", el.name, a.Name.Local)
				}
			}
			list = append(list, el)
			open = append(open, len(list)-1)
		case xml.EndElement:
			open = open[:len(open)-1]
		case xml.CharData:
			for _, i := range open {
				list[i].text += string(tok)
			}
		}
	}
	return list
}

func having(list []element, name, class string) []element {
	return slices.DeleteFunc(slices.Clone(list), func(el element) bool {
		return el.name != name || !slices.Contains(strings.Fields(el.class+" "), class) && class != ""
	})
}

func TestThePageStandsAloneAndShowsBothArms(t *testing.T) {
	e := &Engine{}
	defer e.Close()
	cfg, r := plantedWorld(t, e, sabotage.TimeoutMeansFailed)
	bare, beside := e.Bare(cfg, &r)
	if bare.Tally.Duplicates == 0 {
		t.Error("without the library nothing is done twice in the world beside")
	}
	var page bytes.Buffer
	if err := HTML(&page, &r, &bare, beside, e.WouldSay(cfg, &r)); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"http://", "https://", "@import", "url(", "<script", "javascript:"} {
		if strings.Contains(page.String(), bad) {
			t.Errorf("the page holds %q", bad)
		}
	}
	list := elements(t, page.Bytes())
	sections := having(list, "section", "")
	if len(sections) != 2 || sections[0].id != "with" || sections[1].id != "without" {
		t.Fatalf("the sections are %v", sections)
	}
	for _, lane := range []string{"customer", "queue", "w1", "ledger", "provider"} {
		n := 0
		for _, th := range having(list, "th", "lane") {
			if th.text == lane {
				n++
			}
		}
		if n != 2 {
			t.Errorf("%d of the two tables have a lane %s", n, lane)
		}
	}
	faults := having(list, "span", "fault")
	if len(faults) == 0 || !strings.Contains(faults[0].text, "the worker cannot know") {
		t.Errorf("the fault is not marked: %v", faults)
	}
	framed := having(list, "tr", "bad")
	if len(framed) < 2 || !strings.Contains(framed[0].text, "SENDS") || !strings.Contains(framed[1].text, "the provider's record") {
		t.Errorf("the send that breaks the promise is not framed: %v", framed)
	}
	if legend := having(list, "ul", "legend"); len(legend) != 1 {
		t.Error("there is no legend")
	}
	if would := having(list, "p", "would"); len(would) != 1 || !strings.Contains(would[0].text, "nobody knows whether") {
		t.Errorf("what the rule would have said: %v", would)
	}
	for _, want := range []string{"prefers-color-scheme: dark", "@media print", `lang="en"`, "max-width: 600px"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page has no %q", want)
		}
	}
}

// Every text has the contrast that WCAG AA asks for.
func TestThePageCanBeReadInLightAndDark(t *testing.T) {
	_, root, _ := strings.Cut(pageText, ":root {")
	light, rest, _ := strings.Cut(root, "}")
	_, dark, _ := strings.Cut(rest, ":root {")
	dark, _, _ = strings.Cut(dark, "}")
	colour := regexp.MustCompile(`--([a-z]+): #([0-9a-f]+)`)
	for scheme, text := range map[string]string{"light": light, "dark": dark} {
		palette := map[string]float64{}
		for _, m := range colour.FindAllStringSubmatch(text, -1) {
			palette[m[1]] = luminance(t, m[2])
		}
		for _, pair := range [][2]string{
			{"text", "page"}, {"soft", "page"}, {"fault", "page"}, {"fault", "faultbg"}, {"bad", "page"}, {"text", "badbg"}, {"soft", "badbg"}, {"good", "page"}, {"text", "card"},
		} {
			a, b := palette[pair[0]], palette[pair[1]]
			if ratio := (max(a, b) + .05) / (min(a, b) + .05); ratio < 4.5 {
				t.Errorf("%s: --%s on --%s has a contrast of %.1f", scheme, pair[0], pair[1], ratio)
			}
		}
		if len(palette) < 11 {
			t.Errorf("%s: only %d colours", scheme, len(palette))
		}
	}
}

func TestALineIsWordsForStrangers(t *testing.T) {
	e := &Engine{}
	defer e.Close()
	cfg, r := plantedWorld(t, e, sabotage.TimeoutMeansFailed)
	var b bytes.Buffer
	if err := r.Terminal(&b); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	for _, internal := range []string{"pause-", "timeout-after", "crash-", "ORACLE", "answers [", "_", "naive", "%!"} {
		if strings.Contains(text, internal) {
			t.Errorf("%q is a word of the code:\n%s", internal, text)
		}
	}
	if n := strings.Count(text, "\n"); n > 20 {
		t.Errorf("%d lines are too many:\n%s", n, text)
	}
	if !regexp.MustCompile(`(?m)^ +\+\d+\.\ds  w1 j0#\d    SENDS reply m0, which answers m0   ◀ WRONG$`).MatchString(text) {
		t.Errorf("the send that breaks the promise is not marked:\n%s", text)
	}
	if would := e.WouldSay(cfg, &r); !strings.Contains(would, "nobody knows whether reply m0 happened") {
		t.Errorf("the rule would have said %q", would)
	}
	var m bytes.Buffer
	if err := r.Mermaid(&m); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"sequenceDiagram\n", "w1->>provider: +", "w1->>ledger: +", "Note right of w1: FAULT times out, the provider did it"} {
		if !strings.Contains(m.String(), want) {
			t.Errorf("%q is missing in\n%s", want, m.String())
		}
	}
}

// Every fault and every event that a campaign meets has words.
func TestEveryFaultAtAStepHasWords(t *testing.T) {
	for _, list := range faultsAt {
		for _, f := range list {
			if faultTexts[f] == "" {
				t.Errorf("%s has no words", f)
			}
		}
	}
	e := &Engine{}
	defer e.Close()
	internal := regexp.MustCompile(`[a-z]_[a-z]|%!|answers \[`)
	for seed := uint64(1); seed < 150; seed++ {
		cfg := Campaign{}.Vary(seed)
		r := e.Seed(cfg, seed, true)
		for _, l := range r.Lines() {
			if l.Text == "" || l.Who == "" || l.Lane == "" || internal.MatchString(l.Text) && !strings.HasPrefix(l.Text, "is told of ") {
				t.Fatalf("seed %d: %+v", seed, l)
			}
		}
	}
}

func luminance(t *testing.T, hex string) float64 {
	t.Helper()
	if len(hex) == 3 {
		hex = string([]byte{hex[0], hex[0], hex[1], hex[1], hex[2], hex[2]})
	}
	sum := 0.0
	for i, weight := range []float64{.2126, .7152, .0722} {
		n, err := strconv.ParseUint(hex[2*i:2*i+2], 16, 8)
		if err != nil {
			t.Fatal(err)
		}
		c := float64(n) / 255
		if c <= .03928 {
			c /= 12.92
		} else {
			c = math.Pow((c+.055)/1.055, 2.4)
		}
		sum += weight * c
	}
	return sum
}
