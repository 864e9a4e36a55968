// Package wholefile replaces files so that a reader sees the old one or the new one: see Replace.
package wholefile
