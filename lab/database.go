package lab

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Database returns the address of the switch's database as Open vSwitch writes it: a Unix socket,
// which can be reached from every network namespace.
func (s *LiveSwitch) Database() string { return "unix:" + filepath.Join(s.dir(), "db.sock") }

// StopDatabase ends the switch's database server, as a crash would. The switch goes on forwarding.
func (s *LiveSwitch) StopDatabase(ctx context.Context) error {
	pid, err := s.databasePID()
	if err == nil {
		err = endProcess(ctx, pid)
	}
	if err != nil {
		return fmt.Errorf("stop the database of switch %s: %w", s.name, err)
	}
	return nil
}

// SuspendDatabase makes the switch's database server hang: connections stay open, and
// requests are not answered until ResumeDatabase.
func (s *LiveSwitch) SuspendDatabase() error {
	return s.signalDatabase("suspend", unix.SIGSTOP)
}

// ResumeDatabase lets a suspended database server go on. It then answers the requests that have
// arrived meanwhile.
func (s *LiveSwitch) ResumeDatabase() error {
	return s.signalDatabase("resume", unix.SIGCONT)
}

func (s *LiveSwitch) signalDatabase(verb string, signal unix.Signal) error {
	pid, err := s.databasePID()
	if err == nil {
		err = unix.Kill(pid, signal)
	}
	if err != nil {
		return fmt.Errorf("%s the database of switch %s: %w", verb, s.name, err)
	}
	return nil
}

// databasePID returns the process ID of the switch's database server.
func (s *LiveSwitch) databasePID() (int, error) {
	text, err := os.ReadFile(filepath.Join(s.dir(), databasePIDFile))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(bytes.TrimSpace(text)))
}

// StartDatabase starts the switch's database server again.
func (s *LiveSwitch) StartDatabase(ctx context.Context) error { return s.startDatabase(ctx) }

const databasePIDFile = "ovsdb-server.pid"

func (s *LiveSwitch) startDatabase(ctx context.Context) error {
	return s.run(ctx, "ovsdb-server", filepath.Join(s.dir(), "conf.db"),
		"--remote=p"+s.Database(), "--unixctl="+filepath.Join(s.dir(), "ovsdb.ctl"),
		"--pidfile="+filepath.Join(s.dir(), databasePIDFile),
		"--log-file="+filepath.Join(s.dir(), "ovsdb-server.log"), "--detach", "--no-chdir", "-vconsole:off")
}
