package redisnames

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

// Answers beyond the limits are detected, wherever the excess is and however the input is divided.
func TestGuard(t *testing.T) {
	for text, fine := range map[string]bool{
		"+OK\r\n:5\r\n-ERR no\r\n$-1\r\n*-1\r\n*0\r\n$0\r\n\r\n":                                     true,
		"*2\r\n$5\r\n*9999\r\n*1\r\n:1\r\n+OK\r\n":                                                   true,
		"$22\r\n*99999999999999999999\n\r\n+OK\r\n":                                                  true,
		strings.Repeat("*1\r\n", maxDepth) + "+OK\r\n" + strings.Repeat("*1\r\n", maxDepth) + ":1\r": true,
		strings.Repeat("*1\r\n", maxDepth+1):                                                         false,
		"*1\r\n$99999999999999999999\r\n":                                                            false,
		fmt.Sprintf("+OK\r\n$%d\r\n", maxLine+1):                                                     false,
		fmt.Sprintf("*%d\r\n", maxArray+1):                                                           false,
		"*x\r\n":                                                                                     false,
		strings.Repeat("x", maxLine+1):                                                               false,
		"%1\r\n*0\r\n+x\r\n":                                                                         false,
		"|0\r\n":                                                                                     false,
		"\r\n":                                                                                       false,
		"*2\r\n*1\r\n+a\r\n*2\r\n+b\r\n+c\r\n*70000\r\n":                                             false,
		"*1000\r\n" + bulks(1000, maxLine):                                                           false,
		"*100\r\n" + bulks(100, maxLine) + bulks(9, 10000):                                           true,
	} {
		sizes := []int{1, 3, len(text)}
		if len(text) > 1<<20 {
			sizes = []int{4093, len(text)}
		}
		for _, size := range sizes {
			var a answerParser
			var err error
			for b := []byte(text); len(b) > 0 && err == nil; b = b[min(size, len(b)):] {
				err = a.parse(b[:min(size, len(b))])
			}
			if (err == nil) != fine || err != nil && !errors.Is(err, errTooLarge) && !errors.Is(err, errNotRESP) {
				t.Errorf("%.60q by %d: %v", text, size, err)
			}
		}
	}
}

// bulks returns strings of a size.
func bulks(count, size int) string {
	return strings.Repeat(fmt.Sprintf("$%d\r\n%s\r\n", size, strings.Repeat("x", size)), count)
}

// Arbitrary answers in Redis's place do no harm.
func TestHostileNode(t *testing.T) {
	for _, text := range []string{
		"", "\r\n", "+OK\r\n", "*99999999\r\n", "*9223372036854775807\r\n", "$9223372036854775807\r\n", "*-5\r\n", "$-7\r\n", "%9223372036854775807\r\n",
		"*1\r\n", "*3\r\n:0\r\n:16383\r\n*3\r\n$9\r\n127.0.0.1\r\n:1\r\n$1\r\nx\r\n", "*1\r\n*3\r\n:-5\r\n:99999999\r\n*2\r\n$0\r\n\r\n:0\r\n", "-MOVED 5 :0\r\n", "-ASK\r\n", "_\r\n", ",nan\r\n", "(1\r\n", "!3\r\n",
		"*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:1\r\n",
	} {
		t.Run(fmt.Sprintf("%q", text), func(t *testing.T) {
			t.Parallel()
			hostileNode(t, text)
		})
	}
}

// hostileNode sends a request to a node that always gives the same answer.
func hostileNode(t *testing.T, text string) {
	at := listen(t, "127.79.0.2:0", func(c net.Conn) { say(c, strings.Repeat(text, 20)) })
	s, err := Open(t.Context(), Options{Nodes: []string{at}})
	if err != nil {
		return // it has noticed
	}
	if _, found, err := s.Get(nil, frame.GUID{1}); found || err == nil {
		t.Errorf("found %v, %v", found, err)
	}
	if err := s.Write(t.Context(), sign(t, somebody(), 1, 1)); err == nil {
		t.Error("written")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// listen serves connections until the test ends, and returns the address.
func listen(t *testing.T, at string, serve func(net.Conn)) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { serve(c) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); all.Wait() })
	return l.Addr().String()
}

// say gives one answer to all input.
func say(c net.Conn, text string) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	for b := make([]byte, 4096); ; {
		if _, err := c.Read(b); err != nil {
			return
		}
		if _, err := c.Write([]byte(text)); err != nil {
			return
		}
	}
}

// The parser never uses more memory than its limits.
func FuzzGuard(f *testing.F) {
	f.Add([]byte("*2\r\n$3\r\nabc\r\n:5\r\n"), uint8(3))
	f.Add([]byte("%1\r\n+a\r\n*1\r\n$-1\r\n"), uint8(1))
	f.Fuzz(func(t *testing.T, b []byte, size uint8) {
		var whole, parts answerParser
		err := whole.parse(b)
		var partErr error
		for rest := b; len(rest) > 0 && partErr == nil; {
			n := min(int(size)+1, len(rest))
			partErr = parts.parse(rest[:n])
			rest = rest[n:]
		}
		if (err == nil) != (partErr == nil) {
			t.Fatalf("%v, and in parts %v", err, partErr)
		}
		if len(whole.left) > maxDepth+1 || len(whole.line) > maxLine+1 || whole.skip > maxLine+2 || whole.bytes > maxBytes+maxLine {
			t.Fatalf("%d arrays, a line of %d, %d to skip", len(whole.left), len(whole.line), whole.skip)
		}
	})
}

// Every value in Redis under a name is either an error or its owner's record.
func FuzzStored(f *testing.F) {
	who := somebody()
	f.Add(sign(f, who, 1, 1).AppendTo(make([]byte, stampSize)))
	f.Add([]byte("12345678"))
	name := record.NameOfOwner(who)
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parseStored(name, b)
		if err != nil {
			if !errors.Is(err, ErrStored) {
				t.Fatal(err)
			}
			return
		}
		if r.GUID() != name || !bytes.Equal(r.AppendTo(nil), b[stampSize:]) {
			t.Fatal("it is another record")
		}
		_ = verify([]*record.Record{r}, time.Now())
	})
}
