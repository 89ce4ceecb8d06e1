package sim

// Arm sums up the worlds of one arm of a demonstration.
type Arm struct {
	Messages      int `json:"messages"`
	Answers       int `json:"answers"`
	Duplicates    int `json:"duplicates"`
	Unanswered    int `json:"unanswered"`
	Parked        int `json:"parked"`
	FalselyParked int `json:"falsely_parked"`
}

// Compared is one provider class with and without the library.
type Compared struct {
	Provider string `json:"provider"`
	Without  Arm    `json:"without"`
	With     Arm    `json:"with"`
}

// Demonstration is what `fencedrun demo` shows.
type Demonstration struct {
	Seed          uint64     `json:"seed"`
	Conversations int        `json:"conversations"`
	Trace         string     `json:"trace"`
	Providers     []Compared `json:"providers"`

	Faults map[string]int `json:"-"`
	// First is the first violation with the library, nil if there is none.
	First *Result `json:"-"`
}

// Demonstrate plays n conversations a provider class, with and without the library: in the same
// settings, each with faults of its own draw. From the first step on the two ask other questions,
// so the same seed answers them otherwise.
func (e *Engine) Demonstrate(seed uint64, n int) Demonstration {
	d := Demonstration{Seed: seed, Conversations: n, Faults: map[string]int{}}
	hash := seed
	for _, provider := range []string{"naive", "honours", "fences", lasting, early} {
		c := Compared{Provider: provider}
		for i := range n {
			world := seed*1_000_003 + uint64(i)
			cfg := Config{Rate: 60, Provider: provider}
			with := e.Seed(cfg, world, false)
			if with.Violation != "" && d.First == nil {
				with.Config = cfg
				d.First = &with
			}
			c.With.add(with.Tally)
			hash = (hash ^ with.Hash) * 0x9e3779b97f4a7c15
			cfg.Without = true
			without := e.Seed(cfg, world, false)
			c.Without.add(without.Tally)
			hash = (hash ^ without.Hash) * 0x9e3779b97f4a7c15
		}
		d.Providers = append(d.Providers, c)
	}
	for f := range faults {
		n := 0
		for _, struck := range e.Cov.Struck[f] {
			n += struck
		}
		if n > 0 {
			d.Faults[f.String()] = n
		}
	}
	d.Trace = hex(hash)
	return d
}

func (a *Arm) add(t Tally) {
	a.Messages += t.Messages
	a.Answers += t.Answers
	a.Duplicates += t.Duplicates
	a.Unanswered += t.Unanswered
	a.Parked += t.Parked
	a.FalselyParked += t.FalselyParked
}

func hex(v uint64) string {
	const digits = "0123456789abcdef"
	var b [16]byte
	for i := range b {
		b[15-i] = digits[v&15]
		v >>= 4
	}
	return string(b[:])
}

// Strike counts how often a fault struck at one kind of yield.
type Strike struct {
	Fault string `json:"fault"`
	At    string `json:"at"` // store, effect, read, ack, beat, or "by itself"
	Times int    `json:"times"`
}

// Strikes lists where each fault struck.
func (c *Coverage) Strikes() []Strike {
	list := []Strike{}
	for f := NoFault + 1; f < faults; f++ {
		for k, n := range c.Struck[f] {
			at := "by itself"
			if k < int(kinds) {
				at = kindNames[k]
			}
			if n > 0 {
				list = append(list, Strike{f.String(), at, n})
			}
		}
	}
	return list
}
