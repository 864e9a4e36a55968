package etcdstore

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/etcd/server/v3/etcdserver/api/snap"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// logFacts is what a log says of itself.
type logFacts struct {
	file        string // the last one
	first, last uint64 // the entries that it has: those after first, up to last
	commit      uint64
}

var errNoLog = errors.New("the log is missing")

// readLog reads the log from its last snapshot on, as etcd does when it starts. etcd
// mends an end that was never fully written, and so it is no fault here.
func readLog(dir string) (facts logFacts, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the log %s cannot be read: %v", walDir(dir), p)
		}
	}()
	files, err := logFiles(dir)
	if err != nil {
		return facts, err
	}
	facts.file = files[len(files)-1]
	quiet := zap.NewNop()
	marks, err := wal.ValidSnapshotEntries(quiet, walDir(dir))
	if err != nil {
		return facts, fmt.Errorf("the log %s cannot be read: %w", walDir(dir), err)
	}
	from := latestMark(dir, marks)
	w, err := wal.OpenForRead(quiet, walDir(dir), from)
	if err != nil {
		if from.Index == 0 {
			return facts, fmt.Errorf("the log %s does not reach back to its beginning, and no snapshot in %s stands for what is missing", walDir(dir), snapDir(dir))
		}
		return facts, fmt.Errorf("the log %s does not go on from its snapshot: %w", walDir(dir), err)
	}
	metadata, state, entries, err := w.ReadAll()
	if err != nil {
		return facts, fmt.Errorf("the log %s cannot be read: %w", walDir(dir), err)
	}
	facts.first, facts.last, facts.commit = from.Index, from.Index, state.Commit
	if n := len(entries); n > 0 {
		facts.last = entries[n-1].Index
	}
	return facts, facts.belongs(metadata)
}

// logFiles lists the files of the log.
func logFiles(dir string) ([]string, error) {
	entries, err := os.ReadDir(walDir(dir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var files []string
	for _, e := range entries {
		file := filepath.Join(walDir(dir), e.Name())
		if filepath.Ext(file) != ".wal" {
			continue
		}
		if err := unix.Access(file, unix.R_OK|unix.W_OK); err != nil {
			return nil, &fs.PathError{Op: "open", Path: file, Err: err}
		}
		files = append(files, file)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%w: no file is in %s", errNoLog, walDir(dir))
	}
	return files, nil
}

// latestMark is the latest snapshot of raft whose file is whole.
func latestMark(dir string, marks []walpb.Snapshot) walpb.Snapshot {
	quiet := zap.NewNop()
	for _, m := range slices.Backward(marks) {
		if m.Index == 0 {
			continue
		}
		file := filepath.Join(snapDir(dir), fmt.Sprintf("%016x-%016x.snap", m.Term, m.Index))
		if s, err := snap.Read(quiet, file); err == nil && s.Metadata.Index == m.Index {
			return walpb.Snapshot{Index: m.Index, Term: m.Term}
		}
	}
	return walpb.Snapshot{}
}

// belongs says whose log it is if it is not that of a Sluice controller.
func (f *logFacts) belongs(metadata []byte) error {
	if len(metadata) == 0 {
		return fmt.Errorf("the log %s is empty", f.file)
	}
	var m etcdserverpb.Metadata
	if err := m.Unmarshal(metadata); err != nil {
		return fmt.Errorf("the head of the log %s cannot be read: %w", f.file, err)
	}
	node, err := ourID()
	if err == nil && types.ID(m.NodeID) != node {
		err = fmt.Errorf("the log %s is that of another etcd, member %s: ours is %s", f.file, types.ID(m.NodeID), node)
	}
	return err
}

// ourID is what etcd makes of the name and address of its only member.
func ourID() (types.ID, error) {
	peer, _ := url.Parse(peerAddress) // a constant that parses
	c, err := membership.NewClusterFromURLsMap(zap.NewNop(), clusterToken, types.URLsMap{memberName: types.URLs{*peer}})
	if err != nil {
		return 0, fmt.Errorf("etcdstore: %w", err)
	}
	return c.MemberByName(memberName).ID, nil
}
