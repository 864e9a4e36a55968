// Package wholefile replaces files so that a reader sees the old one or the new one. Replace
// is all of it.
package wholefile
