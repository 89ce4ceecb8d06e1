package command

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"
)

// What a command exits with.
const (
	exitOK    = 0 // what was looked for is not there, or what was to be noticed was
	exitFound = 1 // a promise is broken, a rule's absence was not noticed, or the command failed
	exitUsage = 2 // the command line says something that cannot be meant
)

// flags parse a command line. Errors name the flag and what it takes.
type flags struct {
	*flag.FlagSet
	takes map[string]string // by flag
	intro string
}

func newFlags(name, intro string) *flags {
	f := &flags{FlagSet: flag.NewFlagSet(name, flag.ContinueOnError), takes: map[string]string{}, intro: intro}
	f.SetOutput(io.Discard)
	f.Usage = func() {}
	return f
}

func (f *flags) durationVar(p *time.Duration, name, takes, does string) {
	f.DurationVar(p, name, 0, does)
	f.takes[name] = takes
}

// uint64Var, intVar, stringVar and boolVar declare a flag with what it takes and what it does.
func (f *flags) uint64Var(p *uint64, name string, value uint64, takes, does string) {
	f.Uint64Var(p, name, value, does)
	f.takes[name] = takes
}

func (f *flags) intVar(p *int, name string, value int, takes, does string) {
	f.IntVar(p, name, value, does)
	f.takes[name] = takes
}

func (f *flags) stringVar(p *string, name, takes, does string) {
	f.StringVar(p, name, "", does)
	f.takes[name] = takes
}

func (f *flags) boolVar(p *bool, name, does string) { f.BoolVar(p, name, false, does) }

// parse returns false, and the exit code, when there is nothing left to do.
func (f *flags) parse(args []string, stdout, stderr io.Writer) (code int, ok bool) {
	switch err := f.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, f.help())
		return exitOK, false
	case err != nil:
		return f.refuse(stderr, f.explain(err)), false
	case f.NArg() > 0:
		return f.refuse(stderr, fmt.Sprintf("%q: there are only flags, such as -%s", f.Arg(0), f.first())), false
	}
	return exitOK, true
}

// refuse tells what is wrong with the command line.
func (f *flags) refuse(stderr io.Writer, what string) int {
	fmt.Fprintf(stderr, "%s: %s\n%s -h says more.\n", f.Name(), what, f.Name())
	return exitUsage
}

// bad is the text for a flag whose value cannot be meant.
func (f *flags) bad(name string, value any) string {
	return fmt.Sprintf("-%s %v: -%s takes %s", name, value, name, f.takes[name])
}

// explain adds to an error of package flag what the flag takes.
func (f *flags) explain(err error) string {
	text := err.Error()
	for name, takes := range f.takes {
		if strings.Contains(text, " -"+name+": ") || strings.HasSuffix(text, " -"+name) {
			return text + "; -" + name + " takes " + takes
		}
	}
	return text
}

// set reports whether the flag was given.
func (f *flags) set(name string) bool {
	found := false
	f.Visit(func(have *flag.Flag) { found = found || have.Name == name })
	return found
}

func (f *flags) first() (name string) {
	f.VisitAll(func(have *flag.Flag) {
		if name == "" {
			name = have.Name
		}
	})
	return name
}

func (f *flags) help() string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "usage: %s [flags]\n\n%s\nFlags:\n", f.Name(), f.intro)
	f.VisitAll(func(have *flag.Flag) {
		head := "-" + have.Name
		if takes := f.takes[have.Name]; takes != "" {
			switch {
			case strings.HasPrefix(takes, "a file"), strings.HasPrefix(takes, "the file"):
				head = "-" + have.Name + " FILE"
			case strings.HasPrefix(takes, "the URL"):
				head = "-" + have.Name + " URL"
			case strings.HasPrefix(takes, "a duration"):
				head = "-" + have.Name + " DURATION"
			case strings.HasPrefix(takes, "a whole number"):
				head = "-" + have.Name + " N"
			default:
				head = "-" + have.Name + " NAME"
			}
		}
		fmt.Fprintf(&b, "  %s\n", head)
		text := have.Usage
		if have.DefValue != "" && have.DefValue != "false" {
			text += " (default " + have.DefValue + ")"
		}
		b.WriteString(wrap(text, "        ", 88))
	})
	return b.String()
}

// wrap breaks a text into indented lines.
func wrap(text, indent string, width int) string {
	var b strings.Builder
	line := indent
	for word := range strings.FieldsSeq(text) {
		if len(line)+1+len(word) > width && line != indent {
			b.WriteString(line + "\n")
			line = indent
		}
		if line != indent {
			line += " "
		}
		line += word
	}
	if line != indent {
		b.WriteString(line + "\n")
	}
	return b.String()
}
