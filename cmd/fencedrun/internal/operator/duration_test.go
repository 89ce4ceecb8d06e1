package operator

import (
	"testing"
	"time"
)

func TestDurationsHaveDays(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"10m": 10 * time.Minute, "12h": 12 * time.Hour, "2d": 48 * time.Hour, "1d12h": 36 * time.Hour, "0s": 0, "0": 0, "1.5d": 36 * time.Hour,
		"90s": 90 * time.Second, "1h30m": 90 * time.Minute, "30d": 720 * time.Hour, "1d500ms": day + 500*time.Millisecond,
	} {
		if got, err := parseDuration(text); err != nil || got != want {
			t.Errorf("%s is %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "10", "d", "-1d", "-5m", "1d-5m", "1d+5m", "2 d", "2dd", "1h2d", "NaNd", "Infd", "1e9d", "two", "99999999h", "1d 2h"} {
		if got, err := parseDuration(text); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}

func TestAgesAreShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 40 * time.Millisecond: "40ms", time.Microsecond: "1ms", 45 * time.Second: "45s", 90 * time.Second: "1m30s", 10*time.Minute + 5*time.Second: "10m",
		3*time.Hour + 12*time.Minute: "3h12m", 3 * time.Hour: "3h", 51 * time.Hour: "2d3h", 30 * day: "30d", -time.Minute: "-1m",
	} {
		if got := span(d); got != want {
			t.Errorf("%v is written %s, want %s", d, got, want)
		}
	}
}
