package fence_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/fencedrun/fencedrun/fence"
)

// args reads the arguments of one command and remembers which it knows, so that a misspelt one
// is an error and not a silent default.
type args struct {
	cmd  string
	have []datadriven.CmdArg
	used map[string]bool
}

// badScenario is what a scenario that cannot be understood panics with.
type badScenario string

func wrongf(format string, a ...any) badScenario { return badScenario(fmt.Sprintf(format, a...)) }

func (a *args) find(key string) *datadriven.CmdArg {
	if a.used == nil {
		a.used = map[string]bool{}
	}
	a.used[key] = true
	for i := range a.have {
		if a.have[i].Key == key {
			return &a.have[i]
		}
	}
	return nil
}

func (a *args) has(key string) bool { return a.find(key) != nil }

func (a *args) list(key string) []string {
	if arg := a.find(key); arg != nil {
		return arg.Vals
	}
	return nil
}

// text is the argument's value; a value in parentheses may hold blanks and commas.
func (a *args) text(key, otherwise string) string {
	if arg := a.find(key); arg != nil && len(arg.Vals) > 0 {
		return strings.Join(arg.Vals, ", ")
	}
	return otherwise
}

func (a *args) need(key string) string {
	v := a.text(key, "")
	if v == "" {
		panic(wrongf("%s needs %s=", a.cmd, key))
	}
	return v
}

func (a *args) number(key string, otherwise int) int {
	v := a.text(key, "")
	if v == "" {
		return otherwise
	}
	n, err := strconv.Atoi(v)
	if err != nil {
		panic(wrongf("%s: %s=%s is no number", a.cmd, key, v))
	}
	return n
}

func (a *args) millis(key string, otherwise fence.Millis) fence.Millis {
	v := a.text(key, "")
	if v == "" {
		return otherwise
	}
	return millisOf(v)
}

func millisOf(v string) fence.Millis {
	if days, ok := strings.CutSuffix(v, "d"); ok {
		if n, err := strconv.Atoi(days); err == nil {
			return fence.Millis(n) * 24 * 3600 * 1000
		}
	}
	d, err := time.ParseDuration(v)
	if err != nil {
		panic(wrongf("%s is no duration", v))
	}
	return fence.MillisOf(d)
}

func (a *args) run() fence.RunKey { return runKey(a.need("run")) }

// runKey reads "1" as run 1 of queue q, and "asynq/7" as run 7 of queue asynq.
func runKey(v string) fence.RunKey {
	if queue, id, ok := strings.Cut(v, "/"); ok {
		return fence.RunKey{Queue: queue, ID: id}
	}
	return fence.RunKey{Queue: "q", ID: v}
}

// oneOf returns which of several flags is given.
func (a *args) oneOf(flags ...string) string {
	found := ""
	for _, f := range flags {
		if a.has(f) {
			found = f
		}
	}
	if found == "" {
		panic(wrongf("%s needs one of %s", a.cmd, strings.Join(flags, ", ")))
	}
	return found
}

// unknown panics if an argument was not asked for.
func (a *args) unknown() {
	for i := range a.have {
		if !a.used[a.have[i].Key] {
			panic(wrongf("%s does not know %s", a.cmd, a.have[i].Key))
		}
	}
}

// effectArg is an effect as scenarios write it: reply:m1, or refund:A:1 for a key of two parts.
type effectArg struct {
	id, intent, key, keyID string
}

func effectOf(v string) effectArg {
	parts := strings.Split(v, ":")
	if len(parts) < 2 {
		panic(wrongf("%q is no effect: intent:key", v))
	}
	e := effectArg{id: "effect-of-" + v, intent: parts[0]}
	var key any = parts[1:]
	if len(parts) == 2 {
		key, e.keyID = parts[1], parts[1]
	}
	b, err := json.Marshal(key)
	if err != nil {
		panic(err)
	}
	e.key = string(b)
	return e
}

// loadScenario reads a scenario's commands without running it.
func loadScenario(text string) []datadriven.TestData {
	var found []datadriven.TestData
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		line := strings.TrimSpace(lines[i])
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		cmd, have, err := datadriven.ParseLine(line)
		if err != nil {
			panic(err)
		}
		found = append(found, datadriven.TestData{Cmd: cmd, CmdArgs: have})
		// What follows up to a blank line is expected; between double rules it may have blanks.
		i += slices.Index(lines[i:], "----")
		end := ""
		if i+1 < len(lines) && lines[i+1] == "----" {
			i++
			end = "----"
		}
		for i++; i < len(lines) && lines[i] != end; i++ {
			continue
		}
		if end != "" {
			i++
		}
	}
	return found
}
