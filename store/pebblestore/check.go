package pebblestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/internal/folderlock"
)

// Part is a part of a store that was checked.
type Part struct {
	// Name is "database" or "head".
	Name string `json:"name"`
	// Path is the path of the part.
	Path string `json:"path"`
	// Fault describes the damage; it is empty if there is none.
	Fault string `json:"fault,omitempty"`
}

// Report is the result of a check of a store.
type Report struct {
	// Dir is the data folder.
	Dir string `json:"dir"`
	// Fresh is true if there is no store yet.
	Fresh bool   `json:"fresh"`
	Parts []Part `json:"parts"`
	// Entries is the number of entries in the database, if it is undamaged.
	Entries int `json:"entries"`
	// Denied is true if this user may not read or write something, which is no damage.
	Denied bool `json:"denied"`
	// Latest is the time of the latest snapshot; zero if there is none.
	Latest time.Time `json:"latest,omitzero"`
	// Aside lists the replaced stores that are kept beside this one.
	Aside []Aside `json:"aside,omitempty"`

	content content
	isEtcd  bool // the folder contains the store of an earlier version
}

// Aside is a store that has been replaced, because it was damaged or by a restoration, and that is
// kept beside the present one.
type Aside struct {
	Path string `json:"path"`
	// Reason describes the damage, or says how the store was replaced.
	Reason string `json:"reason"`
}

// Err returns an error that describes the damage and what helps, or nil if there is none.
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
	restore := fmt.Sprintf("\"sluice store restore --latest --dir %s\" brings back the snapshot of %s", r.Dir, r.Latest.Local().Format(time.DateTime))
	if r.Latest.IsZero() {
		restore = fmt.Sprintf("there is no snapshot of it: put back a copy of the folder, or give up what was stored by \"sluice store reset --dir %s\"", r.Dir)
	}
	switch {
	case r.Denied:
		return fmt.Errorf("pebblestore: the store in %s cannot be used: %s; give the folder to the user that runs the controller", r.Dir, what)
	case r.isEtcd:
		return fmt.Errorf("pebblestore: %s holds the store of an earlier version, which this one does not read: %s; %s", r.Dir, what, restore)
	}
	return fmt.Errorf("pebblestore: the store in %s is damaged: %s; %s", r.Dir, what, restore)
}

// Check checks a store without changing it, until ctx ends. No controller may be using the store. A
// store of 100 MiB takes about a second.
func Check(ctx context.Context, dir string) (Report, error) {
	if _, err := os.Stat(dir); err != nil {
		return Report{}, fmt.Errorf("pebblestore: %w", err)
	}
	unlock, err := lock(dir)
	if errors.Is(err, syscall.EROFS) {
		unlock, err = func() {}, nil // on a read-only file system no lock is needed
	}
	if err != nil {
		return Report{}, err
	}
	defer unlock()
	return examine(ctx, dir)
}

// lock ensures that no other process uses the folder.
func lock(dir string) (unlock func(), err error) {
	f, err := folderlock.Take(dir, 0o700)
	if errors.Is(err, folderlock.ErrBusy) {
		err = errors.New("another controller works on it: stop that one, or give this one a data folder of its own")
	}
	if err != nil {
		return nil, fmt.Errorf("pebblestore: lock %s: %w%s", dir, err, hint(err))
	}
	return func() { _ = f.Close() }, nil
}

// hint returns advice about an error of the disk, for the end of the error's text.
func hint(err error) string {
	switch {
	case errors.Is(err, syscall.EROFS):
		return "; a disk turns read-only when it fails: look into the kernel's log, mount it for writing again, or give the controller another data_dir"
	case errors.Is(err, syscall.EIO):
		return "; look after the disk: the kernel's log says more"
	case isDiskFull(err):
		return "; make room on its file system"
	}
	return ""
}

// examine checks a store as Check does. The caller has locked the folder. Its only error is that of
// ctx.
func examine(ctx context.Context, dir string) (Report, error) {
	r := Report{Dir: dir, Parts: []Part{}, Aside: asides(dir)}
	if list, err := Snapshots(dir); err == nil && len(list) > 0 {
		r.Latest = list[0].Time
	}
	database, top := Part{Name: "database", Path: databaseDir(dir)}, Part{Name: "head", Path: headFile(dir)}
	there, err := hasContent(database.Path)
	if err != nil {
		r.setFault(&database, err)
		r.Parts = append(r.Parts, database)
		return r, nil
	}
	last, headErr := readHead(dir)
	if !there {
		r.missing(&database, last, headErr)
		return r, nil
	}
	if headErr != nil {
		r.setFault(&top, headErr)
	}
	r.content, err = readContent(ctx, database.Path, slog.New(slog.DiscardHandler))
	switch {
	case ctx.Err() != nil:
		return r, fmt.Errorf("pebblestore: look through %s: %w", database.Path, ctx.Err())
	case err != nil:
		r.setFault(&database, fmt.Errorf("%s cannot be read as it was written: %w", database.Path, err))
	case unix.Access(database.Path, unix.W_OK) == unix.EACCES:
		r.setFault(&database, &fs.PathError{Op: "write", Path: database.Path, Err: unix.EACCES})
	case headErr != nil:
	case last.id != r.content.id:
		database.Fault = fmt.Sprintf("%s is another store than the one that %s belongs to", database.Path, top.Path)
	case r.content.revision < last.revision:
		database.Fault = fmt.Sprintf("%s lacks changes: it ends with revision %d, and %d has been written", database.Path, r.content.revision, last.revision)
	}
	r.Entries = len(r.content.entries)
	r.Parts = append(r.Parts, database, top)
	return r, nil
}

// missing records that there is no database. That is a fault if there are traces of an earlier
// database.
func (r *Report) missing(database *Part, last headState, headErr error) {
	former := filepath.Join(r.Dir, "etcd")
	switch hasFormer, err := hasContent(former); {
	case headErr == nil:
		database.Fault = fmt.Sprintf("%s is missing or empty, and revision %d has been written to it", database.Path, last.revision)
	case !isHeadMissing(headErr):
		r.setFault(database, fmt.Errorf("%s is missing or empty, and %w", database.Path, headErr))
	case err == nil && hasFormer:
		database.Fault, r.isEtcd = "an etcd is in "+former, true
	case !r.Latest.IsZero():
		database.Fault = "there are snapshots of it, but " + database.Path + " is missing or empty"
	default:
		r.Fresh = true
		return
	}
	r.Parts = append(r.Parts, *database)
}

// setFault records an error as the fault of a part.
func (r *Report) setFault(p *Part, err error) {
	p.Fault = strings.ReplaceAll(err.Error(), "\n", "; ")
	if errors.Is(err, fs.ErrPermission) {
		r.Denied = true
	}
}

// hasContent reports whether a folder exists and is not empty.
func hasContent(folder string) (bool, error) {
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return len(entries) > 0, err
}

// asides returns the replaced stores that are kept below a data folder.
func asides(dir string) (all []Aside) {
	folders, _ := filepath.Glob(filepath.Join(dir, damagedDatabase+"*")) // a pattern that is well-formed
	for _, folder := range folders {
		reason, err := os.ReadFile(filepath.Join(folder, reasonFile))
		if err != nil {
			reason = []byte("unknown")
		}
		all = append(all, Aside{folder, strings.TrimSpace(string(reason))})
	}
	return all
}
