package lab

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// Database is where the switch's database listens, as Open vSwitch writes it: a
// socket of its own, whatever namespace it is asked from.
func (s *LiveSwitch) Database() string { return "unix:" + filepath.Join(s.dir(), "db.sock") }

// StopDatabase ends the switch's database server, as a crash would. The switch goes
// on forwarding.
func (s *LiveSwitch) StopDatabase(ctx context.Context) error {
	text, err := os.ReadFile(filepath.Join(s.dir(), databasePID))
	if err != nil {
		return fmt.Errorf("stop the database of switch %s: %w", s.name, err)
	}
	pid, err := strconv.Atoi(string(bytes.TrimSpace(text)))
	if err == nil {
		err = endProcess(ctx, pid)
	}
	if err != nil {
		return fmt.Errorf("stop the database of switch %s: %w", s.name, err)
	}
	return nil
}

// StartDatabase starts the switch's database server again.
func (s *LiveSwitch) StartDatabase(ctx context.Context) error { return s.startDatabase(ctx) }

const databasePID = "ovsdb-server.pid"

func (s *LiveSwitch) startDatabase(ctx context.Context) error {
	return s.run(ctx, "ovsdb-server", filepath.Join(s.dir(), "conf.db"),
		"--remote=p"+s.Database(), "--unixctl="+filepath.Join(s.dir(), "ovsdb.ctl"),
		"--pidfile="+filepath.Join(s.dir(), databasePID),
		"--log-file="+filepath.Join(s.dir(), "ovsdb-server.log"), "--detach", "--no-chdir", "-vconsole:off")
}
