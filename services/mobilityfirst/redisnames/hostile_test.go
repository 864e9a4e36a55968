package redisnames

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

// member is a node that pretends to be one of a cluster, and then sends answers that no Redis
// would.
type member struct {
	answer     string // to all else
	news       string // to who wants to hear news; empty for answer
	subscribed atomic.Int32
}

// A hostile member does no harm.
func TestHostileMember(t *testing.T) {
	const confirmed = "*3\r\n+subscribe\r\n+" + channel + "\r\n:1\r\n"
	for what, m := range map[string]*member{
		"a map whose key is an array":   {answer: "%1\r\n*0\r\n+x\r\n"},
		"attributes without end":        {answer: strings.Repeat("|0\r\n", 1000)},
		"arrays":                        {answer: "*0\r\n"},
		"numbers":                       {answer: ":0\r\n"},
		"arrays of arrays":              {answer: "*1\r\n*1\r\n*-1\r\n"},
		"news that are nothing":         {answer: "+OK\r\n", news: "*0\r\n"},
		"news that are nothing later":   {answer: "+OK\r\n", news: confirmed + "*0\r\n"},
		"news of a number":              {answer: "+OK\r\n", news: "*1\r\n:1\r\n"},
		"news that are too short":       {answer: "+OK\r\n", news: "*1\r\n+message\r\n"},
		"news without where":            {answer: "+OK\r\n", news: "*3\r\n+message\r\n:1\r\n+x\r\n"},
		"news of several, one a number": {answer: "+OK\r\n", news: "*3\r\n+message\r\n+x\r\n*1\r\n:1\r\n"},
		"a count that is none":          {answer: "+OK\r\n", news: "*3\r\n+subscribe\r\n+x\r\n+y\r\n"},
		"news with attributes":          {answer: "+OK\r\n", news: confirmed + strings.Repeat("|0\r\n", 1000)},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := m.open(t)
			if _, found, err := s.Get(nil, frame.GUID{1}); found || err == nil {
				t.Errorf("found %v, %v", found, err)
			}
			if err := s.Write(t.Context(), sign(t, somebody(), 1, 1)); err == nil {
				t.Error("written")
			}
			eventually(t, "what it says is news no more", func() bool { return m.subscribed.Load() > 1 })
		})
	}
}

// open opens a store at the member, until the test ends.
func (m *member) open(t *testing.T) *Store {
	t.Helper()
	s, err := Open(t.Context(), Options{Nodes: []string{listen(t, "127.79.0.3:0", m.serve)}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// serve answers the commands on a connection.
func (m *member) serve(c net.Conn) {
	defer c.Close()
	port := c.LocalAddr().(*net.TCPAddr).Port
	for in := bufio.NewReader(c); ; {
		command, err := readCommand(in)
		if err != nil {
			return
		}
		answer := m.answer
		switch {
		case strings.HasPrefix(command, "hello "):
			answer = "-ERR unknown command\r\n"
		case strings.HasPrefix(command, "client "):
			answer = "+OK\r\n"
		case command == "cluster slots ":
			answer = fmt.Sprintf("*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n+127.79.0.3\r\n:%d\r\n+%040d\r\n", port, 1)
		case command == "config get append* ":
			answer = "*4\r\n+appendonly\r\n+yes\r\n+appendfsync\r\n+always\r\n"
		case command == "config get maxmemory* ":
			answer = "*2\r\n+maxmemory\r\n+0\r\n"
		case strings.HasPrefix(command, "subscribe "):
			m.subscribed.Add(1)
			if m.news != "" {
				answer = m.news
			}
		}
		if _, err := io.WriteString(c, answer); err != nil {
			return
		}
	}
}

// readCommand reads a command, and returns it in lower case with a space after each word.
func readCommand(in *bufio.Reader) (command string, err error) {
	var words, size int
	if _, err := fmt.Fscanf(in, "*%d\r\n", &words); err != nil {
		return "", err
	}
	for range words {
		if _, err := fmt.Fscanf(in, "$%d\r\n", &size); err != nil {
			return "", err
		}
		word := make([]byte, size+len("\r\n"))
		if _, err := io.ReadFull(in, word); err != nil {
			return "", err
		}
		command += strings.ToLower(string(word[:size])) + " "
	}
	return command, nil
}
