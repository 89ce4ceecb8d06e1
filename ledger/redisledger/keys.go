package redisledger

import (
	"encoding/binary"
	"errors"
	"hash/fnv"
	"strconv"
	"strings"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/ledger"
)

// What stands in Redis. Everything here is frozen: rows are found under these names and in this
// form as long as the format's number is the same.
//
//	<prefix>:format             the format's number
//	<prefix>:{b}:c:<name>       a conversation: a hash of its state t, its head's body h, its rows r<key>
//	<prefix>:{b}:x:<name>       its index: k<key> all rows, l<landed><key>, o<at, inverted><key> open messages
//	<prefix>:{b}:l:<name>       its leases: a hash of their ends
//	<prefix>:{b}:d:<run>        a directory entry
//	<prefix>:{b}:i              the bucket's index: o<kind><at><name><key> open rows, d<due><name><key> due
//	                            ones, t<due><run> tombstones
//
// b is a bucket, 0 to 255, computed from the name. It is the hash tag, so that all that a change
// touches is in one slot. Names stand at a key's end as they are: Cluster looks at the first pair
// of braces only. Indexes are sorted sets whose scores are all 0, so that they sort by their
// members' bytes; common.lua has the form of values.
const (
	format  = "1"
	buckets = 256
)

func bucketOf(name string) int {
	h := fnv.New32a()
	h.Write([]byte(name))
	sum := h.Sum32()
	return int((sum ^ sum>>8 ^ sum>>16 ^ sum>>24) % buckets)
}

func (s *Store) key(bucket int, kind byte, name string) string {
	b := make([]byte, 0, len(s.config.Prefix)+len(name)+10)
	b = append(b, s.config.Prefix...)
	b = append(b, ":{"...)
	b = strconv.AppendInt(b, int64(bucket), 10)
	b = append(b, "}:"...)
	b = append(b, kind)
	if kind != 'i' {
		b = append(b, ':')
		b = append(b, name...)
	}
	return string(b)
}

func (s *Store) entryKey(run string) string { return s.key(bucketOf(run), 'd', run) }

func (s *Store) indexKey(bucket int) string { return s.key(bucket, 'i', "") }

// sorting writes a number so that its bytes sort as it does.
func sorting(n int64) string {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(n)^1<<63)
	return string(b[:])
}

func appendSorting(b []byte, n int64) []byte {
	return binary.BigEndian.AppendUint64(b, uint64(n)^1<<63)
}

func sorted(s string) int64 { return int64(binary.BigEndian.Uint64([]byte(s[:8])) ^ 1<<63) }

// indexSize is the length of what is put in front of a row's body.
const indexSize = 33

// rowValue is a row as it is stored.
func rowValue(row ledger.Row) ([]byte, error) {
	body, err := row.Body()
	if err != nil {
		return nil, err
	}
	ix := row.Index
	b := make([]byte, 0, indexSize+len(body))
	b = append(b, byte(ix.Open))
	b = appendSorting(b, int64(ix.At))
	b = appendSorting(b, ^int64(ix.At))
	b = appendSorting(b, ix.Landed)
	b = appendSorting(b, int64(ix.Due))
	return append(b, body...), nil
}

var errForeign = errors.New("a value in Redis was not written by this package")

func rowOf(key, value string) (ledger.Row, error) {
	if len(value) < indexSize {
		return ledger.Row{}, errForeign
	}
	return ledger.NewRow(key, fence.Index{
		Open: fence.OpenKind(value[0]), At: fence.Millis(sorted(value[1:])),
		Landed: sorted(value[17:]), Due: fence.Millis(sorted(value[25:])),
	}, []byte(value[indexSize:])), nil
}

// stateValue is a conversation's state. Of the head's index only Due means anything.
func stateValue(due fence.Millis, nonce, tag string) []byte {
	b := make([]byte, 0, 9+len(nonce)+len(tag))
	b = appendSorting(b, int64(due))
	b = append(b, byte(len(nonce)))
	b = append(b, nonce...)
	return append(b, tag...)
}

func stateOf(value string) (due fence.Millis, tag string, err error) {
	if len(value) < 9 || len(value) < 9+int(value[8]) {
		return 0, "", errForeign
	}
	return fence.Millis(sorted(value)), value[9+int(value[8]):], nil
}

// The kinds of directory entries.
const (
	settled = 'c' // the run lives on a conversation
	moving  = 'm' // the same, written before the conversation was, and not yet read by anybody
	buried  = 't' // a tombstone
)

// entryValue is the directory entry of a run that lives on a conversation.
func entryValue(kind byte, nonce, conversation string) string {
	return string([]byte{kind, byte(len(nonce))}) + nonce + conversation
}

func tombstoneValue(nonce string, due fence.Millis, tombstone []byte) string {
	return string([]byte{buried, byte(len(nonce))}) + nonce + sorting(int64(due)) + string(tombstone)
}

func homeOf(entry string) (ledger.Home, error) {
	if len(entry) < 2 || len(entry) < 2+int(entry[1]) {
		return ledger.Home{}, errForeign
	}
	rest := entry[2+int(entry[1]):]
	switch {
	case entry[0] == settled || entry[0] == moving:
		return ledger.Home{Found: true, Conversation: rest}, nil
	case entry[0] == buried && len(rest) >= 8:
		return ledger.Home{Found: true, Tombstone: []byte(rest[8:])}, nil
	}
	return ledger.Home{}, errForeign
}

// wasOf says what a directory entry must be, as lives in common.lua does.
func wasOf(h ledger.Home) string {
	switch {
	case !h.Found:
		return ""
	case h.Conversation == "":
		return "t"
	}
	return "c" + h.Conversation
}

// ordered writes a name so that it sorts as its bytes do whatever follows it, and ends where it
// ends: a NUL is followed by 0xff, and the name's end is a NUL and a 1.
func ordered(name string) string {
	if !strings.Contains(name, "\x00") {
		return name + "\x00\x01"
	}
	return strings.ReplaceAll(name, "\x00", "\x00\xff") + "\x00\x01"
}

// unordered splits what ordered wrote from what follows it.
func unordered(s string) (name, rest string, err error) {
	for i := 0; i+1 < len(s); i++ {
		if s[i] != 0 {
			continue
		}
		if s[i+1] == 1 {
			return strings.ReplaceAll(s[:i], "\x00\xff", "\x00"), s[i+2:], nil
		}
		i++
	}
	return "", "", errForeign
}

// leaseField names a lease in the hash of its conversation's leases.
func leaseField(run, nonce string) string {
	b := binary.AppendUvarint(make([]byte, 0, len(run)+len(nonce)+2), uint64(len(run)))
	return string(append(append(b, run...), nonce...))
}

func leaseOf(field string) (run, nonce string, err error) {
	n, size := binary.Uvarint([]byte(field[:min(len(field), binary.MaxVarintLen64)]))
	if size <= 0 || n > uint64(len(field)-size) {
		return "", "", errForeign
	}
	return field[size : size+int(n)], field[size+int(n):], nil
}

// below returns the first name that is above everything that starts with prefix, "" if there is
// none.
func below(prefix string) string {
	end := []byte(prefix)
	for len(end) > 0 {
		if last := len(end) - 1; end[last] < 0xff {
			end[last]++
			return string(end)
		}
		end = end[:len(end)-1]
	}
	return ""
}

func millis(s string) (fence.Millis, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, errForeign
	}
	return fence.Millis(n), nil
}
