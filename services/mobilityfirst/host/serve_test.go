package host

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
)

// The applications of one user leave room for those of others, except root's.
func TestApplicationsOfOneUser(t *testing.T) {
	var c applicationCounts
	const one, other = 1 << 20, 1<<20 + 1 // neither root nor who runs this test
	for range maxApplicationsPerUser {
		if err := c.add(one); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.add(one); !errors.Is(err, ErrTooMany) {
		t.Errorf("add of application %d of one user = %v, want %v", maxApplicationsPerUser+1, err, ErrTooMany)
	}
	if err := c.add(other); err != nil {
		t.Errorf("add for another user = %v", err)
	}
	for c.total < maxApplications {
		if err := c.add(0); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.add(0); !errors.Is(err, ErrTooMany) {
		t.Errorf("add of application %d = %v, want %v", maxApplications+1, err, ErrTooMany)
	}
	for range maxApplicationsPerUser {
		c.remove(one)
	}
	if _, ok := c.byUser[one]; ok || c.total != maxApplications-maxApplicationsPerUser {
		t.Errorf("after the end of one user's applications there are %d by user %v", c.total, c.byUser)
	}
}

// The kernel tells which user has opened a connection.
func TestUserOf(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	if user := userOf(accepted); user != os.Geteuid() {
		t.Errorf("userOf = %d, want %d", user, os.Geteuid())
	}
	inMemory, _ := net.Pipe()
	if user := userOf(inMemory); user != unknownUser {
		t.Errorf("userOf a pipe = %d, want %d", user, unknownUser)
	}
}
