// Package wholefile reads and replaces files as a whole: Replace leaves a reader the old
// content or the new one, and Read takes ordinary files only, of a bounded size.
package wholefile
