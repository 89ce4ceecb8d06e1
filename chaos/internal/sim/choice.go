package sim

// A source answers choices: a number in [0, n), where 0 is the dull one.
type source interface{ choose(n int) int }

// random is splitmix64. It is written out so that a seed means the same everywhere.
type random struct{ state uint64 }

func (r *random) next() uint64 {
	r.state += 0x9e3779b97f4a7c15
	z := r.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

func (r *random) choose(n int) int { return int((r.next() >> 32) * uint64(n) >> 32) }

// seeded draws choices from a seed.
func seeded(seed uint64) source {
	r := &random{state: seed * 0x2545f4914f6cdd1d}
	r.next()
	return r
}

// replayed answers from a list and then dully.
type replayed struct {
	list []int
	at   int
}

func (r *replayed) choose(n int) int {
	if r.at >= len(r.list) {
		return 0
	}
	v := r.list[r.at]
	r.at++
	if v >= n {
		v = n - 1
	}
	return v
}

// bytes answers from a fuzzer's input and then dully.
type bytesSource struct{ data []byte }

func (b *bytesSource) choose(n int) int {
	if len(b.data) == 0 {
		return 0
	}
	v := int(b.data[0])
	b.data = b.data[1:]
	if n > 256 && len(b.data) > 0 {
		v = v<<8 | int(b.data[0])
		b.data = b.data[1:]
	}
	return v % n
}

// choices is a source that remembers what it answered.
type choices struct {
	source source
	log    []int
}

func (c *choices) choose(n int) int {
	if n <= 1 {
		return 0
	}
	v := c.source.choose(n)
	c.log = append(c.log, v)
	return v
}
