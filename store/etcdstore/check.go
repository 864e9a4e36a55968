package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"
)

// Part is a part of a store that has been looked through.
type Part struct {
	// Name is what it is: "database", "log", "snapshots of the log".
	Name string `json:"name"`
	// Path is where it is.
	Path string `json:"path"`
	// Fault is what is wrong with it; empty if it is whole.
	Fault string `json:"fault,omitempty"`
}

// Report is what is wrong with a store.
type Report struct {
	// Dir is the data folder.
	Dir string `json:"dir"`
	// Fresh says that there is no store yet.
	Fresh bool   `json:"fresh"`
	Parts []Part `json:"parts"`
	// Denied says that something may not be read or written by this user: no damage.
	Denied bool `json:"denied"`
	// Latest is when the latest snapshot was taken; zero if there is none.
	Latest time.Time `json:"latest,omitzero"`

	used int64 // what the database uses, in bytes
}

// Err is a sentence with what is wrong and what helps; nil if all is whole.
func (r Report) Err() error {
	var faults []string
	for _, p := range r.Parts {
		if p.Fault != "" {
			faults = append(faults, p.Fault)
		}
	}
	if len(faults) == 0 {
		return nil
	}
	what := strings.Join(faults, "; ")
	switch {
	case r.Denied:
		return fmt.Errorf("etcdstore: the store in %s cannot be used: %s; give the folder to the user that runs the controller", r.Dir, what)
	case r.Latest.IsZero():
		return fmt.Errorf("etcdstore: the store in %s is damaged: %s; there is no snapshot of it: put back a copy of the folder, or move %s away to begin with nothing", r.Dir, what, etcdFolder(r.Dir))
	}
	return fmt.Errorf("etcdstore: the store in %s is damaged: %s; \"sluice store restore --latest --dir %s\" brings back the snapshot of %s", r.Dir, what, r.Dir, r.Latest.Local().Format(time.DateTime))
}

// Check looks through a store without changing it. No controller may run on it. It ends
// with ctx; a store of 100 MiB takes about a second.
func Check(ctx context.Context, dir string) (Report, error) {
	if _, err := os.Stat(dir); err != nil {
		return Report{}, fmt.Errorf("etcdstore: %w", err)
	}
	unlock, err := lock(dir)
	if err != nil {
		return Report{}, err
	}
	defer unlock()
	return check(ctx, dir)
}

// check is Check of a folder that is locked.
func check(ctx context.Context, dir string) (Report, error) {
	r := Report{Dir: dir}
	if list, err := Snapshots(dir); err == nil && len(list) > 0 {
		r.Latest = list[0].Time
	}
	database, log := Part{Name: "database", Path: databaseFile(dir)}, Part{Name: "log", Path: walDir(dir)}
	there, err := anything(dir)
	if err != nil {
		r.deny(&database, err)
		r.Parts = []Part{database}
		return r, nil
	}
	if !there {
		r.Fresh = true
		if !r.Latest.IsZero() {
			database.Fault = "there are snapshots of it, but " + etcdFolder(dir) + " is missing or empty"
			r.Parts = []Part{database}
		}
		return r, nil
	}
	facts, err := checkDatabase(ctx, database.Path)
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return r, fmt.Errorf("etcdstore: look through %s: %w", database.Path, err)
	case err != nil:
		r.deny(&database, err)
	}
	r.used = facts.used
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		// What the log lacks can be said only if the database is whole or missing.
		r.checkLog(dir, facts, &log, &database, err == nil)
	} else if _, logErr := readLog(dir); logErr != nil && !errors.Is(logErr, errNoLog) {
		r.deny(&log, logErr)
	}
	r.Parts = []Part{database, log}
	return r, nil
}

func (r *Report) checkLog(dir string, d databaseFacts, log, database *Part, whole bool) {
	l, err := readLog(dir)
	switch {
	case errors.Is(err, errNoLog) && whole && d.index == 0 && d.keys == 0:
		// A first start that was interrupted: nothing has been stored.
		database.Fault, r.Fresh = "", false
	case err != nil:
		r.deny(log, err)
	case l.last < d.index || l.last < l.commit:
		log.Fault = fmt.Sprintf("the log %s is cut off: it ends with entry %d, and there has been entry %d", l.file, l.last, max(d.index, l.commit))
	case whole && d.index != 0 && d.index < l.first:
		database.Fault = fmt.Sprintf("the database %s is older than its log: it ends with entry %d, and the log begins after %d", database.Path, d.index, l.first)
	}
}

// deny notes an error as the fault of a part.
func (r *Report) deny(p *Part, err error) {
	p.Fault = err.Error()
	if errors.Is(err, fs.ErrPermission) {
		r.Denied = true
	}
}

// anything says whether etcd has left files below the data folder.
func anything(dir string) (bool, error) {
	for _, sub := range []string{snapDir(dir), walDir(dir)} {
		entries, err := os.ReadDir(sub)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
		if len(entries) > 0 {
			return true, nil
		}
	}
	return false, nil
}
