package provider

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// Entry is one line of the provider's log: one thing that it really did.
type Entry struct {
	At           time.Time `json:"at"`
	Did          Did       `json:"did"`
	Conversation string    `json:"conversation"`
	Message      string    `json:"message,omitempty"` // the id of the message received
	Answers      []string  `json:"answers,omitempty"` // the ids of the messages that the reply answers
	Kind         string    `json:"kind,omitempty"`    // of an action
	Object       string    `json:"object,omitempty"`  // of an action
	Text         string    `json:"text,omitempty"`
}

// Did says what the provider did.
type Did string

// What a provider does.
const (
	Received Did = "message" // a customer's message came in
	Replied  Did = "reply"   // the customer was sent an answer
	Acted    Did = "action"  // an action was carried out
)

// log is the append-only file. Nothing in it is unique: the provider does not deduplicate.
type log struct {
	mu   sync.Mutex
	file *os.File
	all  map[string][]Entry // by conversation
}

func openLog(path string) (*log, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open provider's log: %w", err)
	}
	return &log{file: file, all: map[string][]Entry{}}, nil
}

func (l *log) append(entry Entry) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	entry.At = time.Now()
	line, err := json.Marshal(entry)
	if err != nil {
		return fmt.Errorf("encode log entry: %w", err)
	}
	if _, err := l.file.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("write provider's log: %w", err)
	}
	l.all[entry.Conversation] = append(l.all[entry.Conversation], entry)
	return nil
}

func (l *log) conversation(id string) []Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Entry(nil), l.all[id]...)
}

// ReadLog reads a provider's log.
func ReadLog(path string) ([]Entry, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open provider's log: %w", err)
	}
	defer file.Close()
	return readLog(file)
}

func readLog(r io.Reader) ([]Entry, error) {
	var entries []Entry
	lines := bufio.NewReader(r)
	for number := 1; ; number++ {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF && len(line) == 0 {
			return entries, nil
		}
		if err != nil && err != io.EOF {
			return nil, fmt.Errorf("read provider's log: %w", err)
		}
		var entry Entry
		if err := json.Unmarshal(line, &entry); err != nil {
			return nil, fmt.Errorf("provider's log, line %d: %w", number, err)
		}
		entries = append(entries, entry)
	}
}
