package story

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/fencedrun/fencedrun/cmd/fencedrun/internal/shell"
	"github.com/fencedrun/fencedrun/fence"
)

// job names a run: by its id alone as long as that is clear in this conversation.
func (t *teller) job(k fence.RunKey) string {
	switch {
	case k == fence.RunKey{}:
		return "a program without a job"
	case t.queues[k.ID] > 1:
		return "job " + k.Queue + "/" + k.ID
	}
	return "job " + k.ID
}

func (t *teller) jobs(runs []*fence.Run) string {
	names := make([]string, len(runs))
	for i, r := range runs {
		names[i] = t.job(r.Key)
	}
	return listed(names)
}

// named names an effect for people: reply m1, refund order=7 line=2.
func named(intent, key string) string { return intent + " " + readable(key) }

// readable is a key without the marks of JSON.
func readable(key string) string {
	var v any
	if json.Unmarshal([]byte(key), &v) != nil {
		return key
	}
	switch v := v.(type) {
	case string:
		return v
	case map[string]any:
		// In the canonical order, which is the text's own.
		var parts []string
		dec := jsontext.NewDecoder(strings.NewReader(key))
		_, _ = dec.ReadToken() // the brace: it was decoded above
		for dec.PeekKind() == '"' {
			name, err := dec.ReadToken()
			if err != nil {
				return key
			}
			text := name.String()
			value, err := dec.ReadValue()
			if err != nil {
				return key
			}
			parts = append(parts, text+"="+strings.Trim(string(value), `"`))
		}
		return strings.Join(parts, " ")
	}
	return key
}

func listed(names []string) string {
	switch len(names) {
	case 0:
		return "nothing"
	case 1:
		return names[0]
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}

// quoted is text of somebody else's in a sentence of ours. It is cut: the records have all.
func quoted(text string) string {
	const most = 160
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most]) + "…"
	}
	return "“" + text + "”"
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

func plural(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + one + "s"
}

// clock is a point of time as a sentence has it: the time of day, with the date if it is not
// the story's own day.
func (t *teller) clock(m fence.Millis) string {
	at := m.Time().In(t.o.Location)
	if sameDay(at, t.now.In(t.o.Location)) {
		return at.Format("15:04:05")
	}
	return at.Format("2006-01-02 15:04:05")
}

func sameDay(a, b time.Time) bool {
	y, m, d := a.Date()
	y2, m2, d2 := b.Date()
	return y == y2 && m == m2 && d == d2
}

// ago says how long before now m was.
func (t *teller) ago(m fence.Millis) string { return span(t.now.Sub(m.Time())) + " ago" }

// span is a length of time with one unit, as people say it.
func span(d time.Duration) string {
	switch d = max(d, 0); {
	case d < 2*time.Minute:
		return plural(int(d/time.Second), "second")
	case d < 2*time.Hour:
		return plural(int(d/time.Minute), "minute")
	case d < 48*time.Hour:
		return plural(int(d/time.Hour), "hour")
	}
	return plural(int(d/(24*time.Hour)), "day")
}

func (t *teller) past(m fence.Millis) bool { return t.now.After(m.Time()) }

// command is what to type.
func (t *teller) command(verb string, names []string, flags ...string) string {
	return shell.Command(t.o.Command+" "+verb, names, flags...)
}

// ToReplace stands in commands for what a person must write.
const ToReplace = "…"

const placeholder = `"` + ToReplace + `"`

// short is the beginning of an effect's id, which the commands take for the whole: 60 bits.
func short(id string) string {
	const enough = 12
	return id[:min(len(id), enough)]
}

// visible replaces what a terminal would act on: texts come from customers and models.
func visible(s string) string {
	bad := func(r rune) bool {
		return r < ' ' || r >= 0x7f && r < 0xa0 || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 || r == 0xfffd
	}
	if !strings.ContainsFunc(s, bad) {
		return s
	}
	return strings.Map(func(r rune) rune {
		if bad(r) {
			return '�'
		}
		return r
	}, s)
}

func callName(c *fence.Call) string { return fmt.Sprintf("call %d", c.Number) }
