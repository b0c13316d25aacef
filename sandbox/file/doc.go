// Package file has the nouns of the file tools: what is asked of them (Request), what
// they may do (Caps), what came of it (Result), and the codes of both. The API, policy and the
// worker inside a session share these types; nothing is said twice.
//
// The package is data and validation: it opens no file and knows no path of any machine. What acts
// is internal/filetool. The JSON form is that of the struct tags: closed objects, exact integers, bytes in base64. A
// file name that is not UTF-8 has a twin in bytes (path_bytes), and in texts that list
// names it is quoted, see [Quote].
package file
