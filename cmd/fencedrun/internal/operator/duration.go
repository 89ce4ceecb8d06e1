package operator

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// duration is a flag that takes 10m, 12h, 2d or 1d12h.
type duration time.Duration

// String, Set and Type are those of a flag's value.
func (d *duration) String() string { return span(time.Duration(*d)) }

// Set parses the flag's text.
func (d *duration) Set(text string) error {
	v, err := parseDuration(text)
	*d = duration(v)
	return err
}

// Type names what the flag takes in its help.
func (d *duration) Type() string { return "AGE" }

// day is one of 24 hours.
const day = 24 * time.Hour

// parseDuration reads what Go's durations are, and days before that: 2d, 1d12h.
func parseDuration(text string) (time.Duration, error) {
	wrong := fmt.Errorf("%q is no length of time: write 10m, 12h, 2d or 1d12h", text)
	var total time.Duration
	rest := text
	if days, after, ok := strings.Cut(text, "d"); ok {
		n, err := strconv.ParseFloat(days, 64)
		if err != nil || !(n >= 0 && n <= 36500) {
			return 0, wrong
		}
		total, rest = time.Duration(n*float64(day)), after
		if rest == "" {
			return total, nil
		}
	}
	v, err := time.ParseDuration(rest)
	if err != nil || v < 0 || strings.HasPrefix(rest, "+") || total+v < 0 {
		return 0, wrong
	}
	return total + v, nil
}

// span writes a length of time with its two largest units: 45s, 1m30s, 3h12m, 2d3h. Seconds
// matter to nobody after ten minutes.
func span(d time.Duration) string {
	if d < 0 {
		return "-" + span(-d)
	}
	if d < time.Second {
		if d == 0 {
			return "0s"
		}
		return strconv.FormatInt(max(d.Milliseconds(), 1), 10) + "ms"
	}
	switch {
	case d >= day:
		return two(d, day, "d", time.Hour, "h")
	case d >= time.Hour:
		return two(d, time.Hour, "h", time.Minute, "m")
	case d >= 10*time.Minute:
		return two(d, time.Minute, "m", 0, "")
	case d >= time.Minute:
		return two(d, time.Minute, "m", time.Second, "s")
	}
	return two(d, time.Second, "s", 0, "")
}

func two(d, large time.Duration, nameLarge string, small time.Duration, nameSmall string) string {
	text := strconv.FormatInt(int64(d/large), 10) + nameLarge
	if small > 0 && d%large/small > 0 {
		text += strconv.FormatInt(int64(d%large/small), 10) + nameSmall
	}
	return text
}
