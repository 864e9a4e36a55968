// Package wholefile reads and replaces whole files. While Replace runs, a reader sees either the
// old content or the new one. Read accepts regular files of a bounded size only.
package wholefile
