package transcript

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReadTakesOneConversationALine(t *testing.T) {
	input := "\ufeff" + `{"convo_id": 3592, "scenario": {"x": 1}, "original": [["customer", "Hi!"], ["agent", "Hello"]]}` + "\r\n" +
		"\n" +
		`{"convo_id": "b", "original": [["action", "Looked."], ["customer", "Bye"]]}` // no newline at the end
	got, err := Read(strings.NewReader(input))
	if err != nil {
		t.Fatal(err)
	}
	want := []Conversation{
		{ID: "3592", Turns: []Turn{{Customer, "Hi!"}, {Agent, "Hello"}}},
		{ID: "b", Turns: []Turn{{Act, "Looked."}, {Customer, "Bye"}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestMalformedLinesAreReportedByNumberAndReason(t *testing.T) {
	const good = `{"convo_id": "good", "original": [["customer", "Hi!"]]}`
	for _, test := range []struct{ line, reason string }{
		{`nope`, "not JSON"},
		{good + good, "not JSON"},
		{`[1]`, "want a JSON object, found array"},
		{`{"original": [["customer", "Hi!"]]}`, "convo_id: missing"},
		{`{"convo_id": null, "original": [["customer", "Hi!"]]}`, "convo_id: missing"},
		{`{"convo_id": "", "original": [["customer", "Hi!"]]}`, "convo_id: empty"},
		{`{"convo_id": 1.5, "original": [["customer", "Hi!"]]}`, "convo_id: want a string or a whole number"},
		{`{"convo_id": "` + strings.Repeat("x", MaxID+1) + `", "original": [["customer", "Hi!"]]}`, "convo_id: 201 bytes"},
		{`{"convo_id": "x"}`, "original: no turn of a customer"},
		{`{"convo_id": "x", "original": [["agent", "Hi!"]]}`, "original: no turn of a customer"},
		{`{"convo_id": "x", "original": "Hi!"}`, "original: found string"},
		{`{"convo_id": "x", "original": [["customer"]]}`, "original[0]: want"},
		{`{"convo_id": "x", "original": [["customer", "Hi!"], ["customer", 7]]}`, "original[1]: want"},
		{`{"convo_id": "x", "original": [["boss", "Hi!"]]}`, `original[0]: speaker "boss"`},
		{`{"convo_id": "x", "original": [["customer", ""]]}`, "original[0]: empty text"},
		{"{\"convo_id\": \"\xff\", \"original\": [[\"customer\", \"Hi!\"]]}", "not valid UTF-8"},
		{good, "was used on line 1"},
	} {
		conversations, err := Read(strings.NewReader(good + "\n\n" + test.line + "\n"))
		var lineErr *LineError
		if !errors.As(err, &lineErr) {
			t.Errorf("%s: error %v, want a LineError", test.line, err)
			continue
		}
		if lineErr.Line != 3 || !strings.Contains(lineErr.Err.Error(), test.reason) {
			t.Errorf("%s: error %q, want line 3 and %q", test.line, err, test.reason)
		}
		if conversations != nil {
			t.Errorf("%s: conversations beside an error", test.line)
		}
	}
}

func TestEveryMalformedLineIsReportedUpToTen(t *testing.T) {
	_, err := Read(strings.NewReader(strings.Repeat("nope\n", 3)))
	if n := strings.Count(err.Error(), "line "); n != 3 {
		t.Errorf("3 malformed lines: %d reported", n)
	}
	_, err = Read(strings.NewReader(strings.Repeat("nope\n", 1000)))
	if n := strings.Count(err.Error(), "line "); n != maxReported || !strings.Contains(err.Error(), "too many") {
		t.Errorf("1000 malformed lines: %d reported", n)
	}
}

func TestAnInputWithoutConversationsIsAnError(t *testing.T) {
	if _, err := Read(strings.NewReader("\n\n")); err == nil {
		t.Error("no error")
	}
}
