/* class_http1_head.c - HTTP1::Head: the head of a request. Its bytes are copied once; Strings are made of
 * them when they are asked for. */
#include <string.h>
#include "http1_ruby.h"
#include "http1_scan.h"

static VALUE cHead;
static VALUE verbs[HTTP1_VERBS];        /* frozen Strings; registered */
static VALUE names[HTTP1_NAMES];
static VALUE keys[HTTP1_NAMES];         /* in the env of Rack */
static VALUE http_1_0, no_host, version_1_0, version_1_1;
static VALUE key_method, key_path, key_uri, key_query, key_protocol, key_server_name, key_server_port;
static VALUE key_finished, key_request, key_hijack, key_address, key_port, localhost;
static ID id_http1, id_head, id_state, id_connection, id_app_data;
static VALUE sym_idle;

struct head {
  struct http1_head head;               /* its fields.list is ours; limits is NULL */
  uint32_t length;
  uint32_t sent;                        /* bytes of the body of a plain answer, and its status; see http1_head_answered */
  int status;
  VALUE env, request;                   /* of Rack, and whose it is; or nil */
  char bytes[];                         /* then the list of fields */
};

static void head_mark(void *ptr) {
  struct head *head = ptr;
  rb_gc_mark_movable(head->env);
  rb_gc_mark_movable(head->request);
}

static void head_compact(void *ptr) {
  struct head *head = ptr;
  head->env = rb_gc_location(head->env);
  head->request = rb_gc_location(head->request);
}

static size_t head_memsize(const void *ptr) {
  const struct head *head = ptr;
  return sizeof(*head) + head->length + head->head.fields.count * sizeof(struct http1_field);
}

static const rb_data_type_t head_type = {
  .wrap_struct_name = "Polyphony::HTTP::HTTP1::Head",
  .function = { .dmark = head_mark, .dcompact = head_compact, .dfree = RUBY_TYPED_DEFAULT_FREE, .dsize = head_memsize },
  .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

static size_t aligned(size_t size) { return (size + 7) & ~(size_t)7; }

VALUE http1_head_new(const struct http1_head *parsed, const char *base) {
  size_t list = parsed->fields.count * sizeof(struct http1_field), bytes = aligned(parsed->fields.pos);
  struct head *head = ruby_xmalloc(sizeof(*head) + bytes + list);

  head->head = *parsed;
  head->head.limits = NULL;
  head->length = parsed->fields.pos;
  head->sent = head->status = 0;
  head->env = head->request = Qnil;
  memcpy(head->bytes, base, head->length);
  head->head.fields.list = (struct http1_field *)(head->bytes + bytes);
  if (list) memcpy(head->head.fields.list, parsed->fields.list, list);
  return TypedData_Wrap_Struct(cHead, &head_type, head);
}

static struct head *head_of(VALUE self) {
  struct head *head = rb_check_typeddata(self, &head_type);
  return head;
}

enum http1_verb http1_head_verb(VALUE self) { return head_of(self)->head.verb; }

int http1_head_status(VALUE self, uint32_t *size) {
  if (!rb_typeddata_is_kind_of(self, &head_type)) return 0;
  const struct head *head = RTYPEDDATA_DATA(self);

  *size = head->sent;
  return head->status;
}

void http1_head_answered(VALUE self, int status, uint32_t size) {
  struct head *head = head_of(self);

  head->status = status;
  head->sent = size;
}

static VALUE string_at(const char *base, struct http1_span span) {
  return rb_str_new(base + span.at, span.length);
}

/* ---- names ---------------------------------------------------------------------------------- */

/* Folded on the stack if it is short, as all are but those of somebody who is playing. */
static VALUE folded(const char *name, size_t length, const char *prefix, char (*fold)(char)) {
  char small[128];
  size_t skip = strlen(prefix);
  VALUE room = 0;
  char *text = skip + length <= sizeof(small) ? small : rb_alloc_tmp_buffer(&room, (long)(skip + length));

  memcpy(text, prefix, skip);
  for (size_t i = 0; i < length; i++) text[skip + i] = fold(name[i]);
  VALUE string = rb_enc_interned_str(text, (long)(skip + length), rb_utf8_encoding());
  if (room) rb_free_tmp_buffer(&room);
  return string;
}

static char lower(char c) { return scan_lower(c); }
static char env_letter(char c) { return c >= 'a' && c <= 'z' ? (char)(c & ~0x20) : c == '-' ? '_' : c; }

static VALUE name_of(const struct http1_field *field, const char *base) {
  if (field->known) return names[field->known];
  return folded(base + field->name.at, field->name.length, "", lower);
}

static VALUE key_of(const struct http1_field *field, const char *base) {
  if (field->known) return keys[field->known];
  return folded(base + field->name.at, field->name.length, "HTTP_", env_letter);
}

/* ---- fields --------------------------------------------------------------------------------- */

static VALUE value_of(const struct http1_field *field, const char *base, const struct http1_span *host) {
  return string_at(base, host && field->known == HTTP1_NAME_HOST ? *host : field->value);
}

static bool same_name_p(const char *a, const char *b, size_t length) {
  for (size_t i = 0; i < length; i++) if (scan_lower(a[i]) != scan_lower(b[i])) return false;
  return true;
}

/* Whether one of the fields before it has the same name. */
static bool repeated_p(const struct http1_fields *fields, uint32_t index, const char *base) {
  const struct http1_field *field = &fields->list[index];

  for (uint32_t i = 0; i < index; i++) {
    const struct http1_field *other = &fields->list[i];
    if (other->known != field->known || other->name.length != field->name.length) continue;
    if (field->known || same_name_p(base + other->name.at, base + field->name.at, field->name.length)) return true;
  }
  return false;
}

static void join(VALUE before, VALUE value, bool cookie) {
  rb_str_cat(before, cookie ? "; " : ", ", 2);
  rb_str_append(before, value);
}

/* What was in the Hash before us is replaced: it is not the client's to add to. */
static void add(VALUE hash, VALUE key, VALUE value, const struct http1_fields *fields, uint32_t index, const char *base) {
  if (repeated_p(fields, index, base))
    join(rb_hash_aref(hash, key), value, fields->list[index].known == HTTP1_NAME_COOKIE);
  else rb_hash_aset(hash, key, value);
}

VALUE http1_fields_hash(const struct http1_fields *fields, const char *base, const struct http1_span *host) {
  VALUE hash = rb_hash_new();

  for (uint32_t i = 0; i < fields->count; i++) {
    const struct http1_field *field = &fields->list[i];
    add(hash, name_of(field, base), value_of(field, base, host), fields, i, base);
  }
  return hash;
}

static const struct http1_span *host_instead(const struct head *head) {
  return head->head.absolute ? &head->head.host : NULL;
}

static VALUE Head_headers(VALUE self) {
  struct head *head = head_of(self);
  VALUE hash = http1_fields_hash(&head->head.fields, head->bytes, host_instead(head));

  RB_GC_GUARD(self);                    /* head */
  return hash;
}

static bool named_p(const struct http1_field *field, const char *base, const char *name, size_t length,
                    uint32_t known) {
  if (field->known || known) return field->known == known;
  return field->name.length == length && same_name_p(base + field->name.at, name, length);
}

/* One field, without making a Hash of all. */
static VALUE Head_field(VALUE self, VALUE name) {
  struct head *head = head_of(self);
  VALUE found = Qnil;
  StringValue(name);
  const char *text = RSTRING_PTR(name);
  size_t length = (size_t)RSTRING_LEN(name);
  uint32_t known = http1_name_find(text, length);

  for (uint32_t i = 0; i < head->head.fields.count; i++) {
    const struct http1_field *field = &head->head.fields.list[i];
    if (!named_p(field, head->bytes, text, length, known)) continue;
    VALUE value = value_of(field, head->bytes, host_instead(head));
    if (NIL_P(found)) found = value;
    else join(found, value, known == HTTP1_NAME_COOKIE);
  }
  RB_GC_GUARD(name);                    /* text */
  RB_GC_GUARD(self);
  return found;
}

/* ---- the env of Rack ------------------------------------------------------------------------ */

static bool named_proxy_p(const struct http1_field *field, const char *base) {
  return field->name.length == 5 && same_name_p(base + field->name.at, "proxy", 5);
}

static bool underscore_p(const struct http1_field *field, const char *base) {
  return !field->known && memchr(base + field->name.at, '_', field->name.length);
}

/* X_Forwarded_For has the same key as X-Forwarded-For, which a proxy in front of us may have set or
 * removed: what is spelled with a dash wins, and what frames or routes a message has no second spelling. */
static bool one_spelling_p(const char *name, size_t length) {
  char dashed[64];

  if (length > sizeof(dashed)) return true;
  for (size_t i = 0; i < length; i++) dashed[i] = name[i] == '_' ? '-' : name[i];
  uint32_t known = http1_name_find(dashed, length);
  return known && !http1_trailer_p(&(struct http1_field){ .known = known });
}

static void fill_second(VALUE env, VALUE key, VALUE value) {
  if (rb_hash_lookup2(env, key, Qundef) == Qundef) rb_hash_aset(env, key, value);
}

static void fill_underscored(const struct head *head, VALUE env) {
  const struct http1_fields *fields = &head->head.fields;

  for (uint32_t i = 0; i < fields->count; i++) {
    const struct http1_field *field = &fields->list[i];
    if (!underscore_p(field, head->bytes) || one_spelling_p(head->bytes + field->name.at, field->name.length)) continue;
    fill_second(env, key_of(field, head->bytes), string_at(head->bytes, field->value));
  }
}

/* Proxy is a header of the client's; programs take HTTP_PROXY for a setting (CVE-2016-5385). */
static void fill_fields(const struct head *head, VALUE env) {
  const struct http1_fields *fields = &head->head.fields;

  for (uint32_t i = 0; i < fields->count; i++) {
    const struct http1_field *field = &fields->list[i];
    if (field->known == HTTP1_NAME_HOST && head->head.host.length) continue; /* see env_for */
    if (!field->known && named_proxy_p(field, head->bytes)) continue;
    if (fields->underscores && underscore_p(field, head->bytes)) continue;
    add(env, key_of(field, head->bytes), value_of(field, head->bytes, NULL), fields, i, head->bytes);
  }
  if (fields->underscores) fill_underscored(head, env);
}

/* RackHandler::Environment::Base, of a connection, and its Template, which all connections share as long as they can: a thousand of
 * them would not fit into the processor's cache. */
enum base { BASE_TEMPLATE, BASE_ADDRESS, BASE_PORT, BASE_OWNER };
enum template { TEMPLATE_ENV, TEMPLATE_DEFAULT_PORT, TEMPLATE_HOST, TEMPLATE_ADDRESS };

/* The port is all digits, behind a colon; an address with colons stands in [ ]. */
static void set_server(VALUE template, const char *host, const char *end, VALUE default_port) {
  const char *stop = end;

  while (stop > host && scan_is(stop[-1], SCAN_DIGIT)) stop--;
  if (stop == host || stop[-1] != ':') stop = end + 1;
  VALUE name = host == end ? localhost : rb_str_freeze(rb_str_new(host, stop - 1 - host));
  rb_hash_aset(template, key_server_name, name);
  rb_hash_aset(template, key_server_port, stop < end ? rb_str_freeze(rb_str_new(stop, end - stop)) : default_port);
}

/* A host that is empty is none: without it there is no HTTP_HOST. */
static void set_host(VALUE env, const char *name, size_t length, VALUE default_port) {
  set_server(env, name, name + length, default_port);
  if (length) rb_hash_aset(env, keys[HTTP1_NAME_HOST], rb_str_freeze(rb_str_new(name, (long)length)));
  else rb_hash_delete(env, keys[HTTP1_NAME_HOST]);
}

static bool same_p(VALUE string, const char *text, size_t length) {
  return !NIL_P(string) && (size_t)RSTRING_LEN(string) == length && !memcmp(RSTRING_PTR(string), text, length);
}

/* Clients ask for the same host, and a proxy has the same address, again and again: so that is part of the template. */
static VALUE env_for(VALUE base, const char *name, size_t length) {
  VALUE template = RSTRUCT_GET(base, BASE_TEMPLATE), address = RSTRUCT_GET(base, BASE_ADDRESS);
  Check_Type(template, T_STRUCT);
  VALUE env = RSTRUCT_GET(template, TEMPLATE_ENV);

  Check_Type(env, T_HASH);
  if (!same_p(RSTRUCT_GET(template, TEMPLATE_HOST), name, length)) {
    set_host(env, name, length, RSTRUCT_GET(template, TEMPLATE_DEFAULT_PORT));
    RSTRUCT_SET(template, TEMPLATE_HOST, rb_str_new(name, (long)length));
  }
  if (!same_p(RSTRUCT_GET(template, TEMPLATE_ADDRESS), RSTRING_PTR(address), (size_t)RSTRING_LEN(address))) {
    rb_hash_aset(env, key_address, address);
    RSTRUCT_SET(template, TEMPLATE_ADDRESS, address);
  }
  env = rb_hash_dup(env);
  if (!NIL_P(RSTRUCT_GET(base, BASE_PORT))) rb_hash_aset(env, key_port, RSTRUCT_GET(base, BASE_PORT));
  return env;
}

static VALUE path_of(const struct head *head) {
  const struct http1_span path = head->head.path;
  return path.length ? string_at(head->bytes, path) : rb_str_new_cstr("/");
}

/* Of an absolute target only what is behind the host: the rest is in Host's place. */
static VALUE Head_target(VALUE self) {
  struct head *head = head_of(self);

  if (!head->head.absolute) return string_at(head->bytes, head->head.target);
  VALUE target = path_of(head);
  if (!head->head.has_query) return target;
  rb_str_cat(target, "?", 1);
  return rb_str_cat(target, head->bytes + head->head.query.at, head->head.query.length);
}

/* The template is that of a GET of HTTP/1.1 without a query, which most are: what it says is not said again, for each entry
 * costs half as much as the parsing of a short head. */
static VALUE make_env(VALUE self, struct head *head, VALUE base, VALUE request) {
  VALUE env = env_for(base, head->bytes + head->head.host.at, head->head.host.length);

  RB_OBJ_WRITE(self, &head->env, env);
  RB_OBJ_WRITE(self, &head->request, request);
  if (head->head.verb != HTTP1_VERB_GET) rb_hash_aset(env, key_method, verbs[head->head.verb]);
  rb_hash_aset(env, key_path, path_of(head));
  rb_hash_aset(env, key_uri, Head_target(self));
  if (head->head.query.length) rb_hash_aset(env, key_query, string_at(head->bytes, head->head.query));
  if (!head->head.minor) rb_hash_aset(env, key_protocol, http_1_0);
  fill_fields(head, env);
  rb_hash_aset(env, key_finished, rb_ary_new());
  rb_hash_aset(env, key_request, request);
  rb_hash_aset(env, key_hijack, self);
  return env;
}

/* ---- the same for HTTP/2 -------------------------------------------------------------------------- */

static bool underscored_p(VALUE name) { return memchr(RSTRING_PTR(name), '_', (size_t)RSTRING_LEN(name)); }

static VALUE header_key(VALUE name) {
  const char *text = RSTRING_PTR(name);
  size_t length = (size_t)RSTRING_LEN(name);
  uint32_t known = http1_name_find(text, length);

  return known ? keys[known] : folded(text, length, "HTTP_", env_letter);
}

struct filling {
  VALUE env;
  bool underscores;
};

/* Names are lower-case here. */
static int fill_header(VALUE name, VALUE value, VALUE argument) {
  struct filling *filling = (struct filling *)argument;

  Check_Type(name, T_STRING);
  if (underscored_p(name)) filling->underscores = true;
  else if (!same_p(name, "proxy", 5)) rb_hash_aset(filling->env, header_key(name), value);
  return ST_CONTINUE;
}

static int fill_second_header(VALUE name, VALUE value, VALUE env) {
  if (underscored_p(name) && !one_spelling_p(RSTRING_PTR(name), (size_t)RSTRING_LEN(name)))
    fill_second(env, header_key(name), value);
  return ST_CONTINUE;
}

static void fill_target(VALUE env, VALUE target) {
  Check_Type(target, T_STRING);
  const char *text = RSTRING_PTR(target), *end = text + RSTRING_LEN(target);
  const char *cut = memchr(text, '?', (size_t)(end - text));

  rb_hash_aset(env, key_uri, target);
  rb_hash_aset(env, key_path, rb_str_new(text, (cut ? cut : end) - text));
  if (cut) rb_hash_aset(env, key_query, rb_str_new(cut + 1, end - cut - 1));
  RB_GC_GUARD(target);                  /* text */
}

/* __http2_env(base, request, verb, target, headers) => Hash. The template is that of a GET of HTTP/2. */
static VALUE HTTP_s_http2_env(VALUE self, VALUE base, VALUE request, VALUE verb, VALUE target, VALUE headers) {
  Check_Type(base, T_STRUCT);
  Check_Type(headers, T_HASH);
  Check_Type(verb, T_STRING);
  VALUE host = rb_hash_lookup(headers, names[HTTP1_NAME_HOST]);
  if (NIL_P(host)) host = no_host;
  VALUE env = env_for(base, StringValuePtr(host), (size_t)RSTRING_LEN(host));
  struct filling filling = { env, false };

  RB_GC_GUARD(host);                    /* its bytes */
  if (!same_p(verb, "GET", 3)) rb_hash_aset(env, key_method, verb);
  fill_target(env, target);
  rb_hash_foreach(headers, fill_header, (VALUE)&filling);
  if (filling.underscores) rb_hash_foreach(headers, fill_second_header, env);
  rb_hash_aset(env, key_finished, rb_ary_new());
  rb_hash_aset(env, key_request, request);
  return env;
}

/* make_env(base, request) => Hash */
static VALUE Head_make_env(VALUE self, VALUE base, VALUE request) {
  Check_Type(base, T_STRUCT);
  return make_env(self, head_of(self), base, request);
}

/* The one that was made, or nil. */
static VALUE Head_env(VALUE self) { return head_of(self)->env; }

/* A head is the rack.hijack of its env: it is there for each request, and an object more would cost as much as the parsing. */
static VALUE Head_call(VALUE self) {
  VALUE request = head_of(self)->request;

  if (NIL_P(request)) rb_raise(rb_eRuntimeError, "there is no env of this request");
  return rb_funcallv(request, rb_intern("__rack_hijack"), 0, NULL);
}

/* It names a host, and no other protocol, and brings no body along: then there is nothing to add. */
static bool usual_p(const struct http1_head *head) {
  bool host = false;

  for (uint32_t i = 0; i < head->fields.count; i++) {
    if (head->fields.list[i].known == HTTP1_NAME_HOST) host = true;
    else if (head->fields.list[i].known == HTTP1_NAME_UPGRADE) return false;
  }
  return host && head->framing == HTTP1_NO_BODY;
}

/* __env(request, environment) => Hash, or nil: it is to be made in the usual way. All that RackHandler does for nearly every
 * request of HTTP/1, in one call. */
static VALUE HTTP_s_env(VALUE self, VALUE request, VALUE environment) {
  VALUE object = rb_attr_get(request, id_head);

  if (NIL_P(object) || !usual_p(&head_of(object)->head)) return Qnil;
  VALUE base = rb_attr_get(rb_attr_get(rb_attr_get(request, id_http1), id_connection), id_app_data);
  if (!RB_TYPE_P(base, T_STRUCT) || NUM2LONG(rb_struct_size(base)) <= BASE_OWNER) return Qnil;
  if (RSTRUCT_GET(base, BASE_OWNER) != environment) return Qnil;
  return make_env(object, head_of(object), base, request);
}

/* ---- the rest ------------------------------------------------------------------------------- */

static VALUE Head_status(VALUE self) {
  struct head *head = head_of(self);
  return head->status ? INT2FIX(head->status) : Qnil;
}

static VALUE Head_sent(VALUE self) { return UINT2NUM(head_of(self)->sent); }
static VALUE Head_verb(VALUE self) { return verbs[head_of(self)->head.verb]; }
static VALUE Head_version(VALUE self) { return head_of(self)->head.minor ? version_1_1 : version_1_0; }
static VALUE Head_path(VALUE self) { return path_of(head_of(self)); }
static VALUE Head_asterisk_p(VALUE self) { return head_of(self)->head.asterisk ? Qtrue : Qfalse; }
static VALUE Head_upgrade_p(VALUE self) { return head_of(self)->head.upgrade ? Qtrue : Qfalse; }

static VALUE Head_plain_p(VALUE self) { return http1_plain_p(&head_of(self)->head) ? Qtrue : Qfalse; }

static VALUE Head_query(VALUE self) {
  struct head *head = head_of(self);
  return head->head.has_query ? string_at(head->bytes, head->head.query) : Qnil;
}

static VALUE Head_host(VALUE self) {
  struct head *head = head_of(self);
  return head->head.host.length ? string_at(head->bytes, head->head.host) : Qnil;
}

/* ---- HTTP1::Request --------------------------------------------------------------------------- */

static VALUE cRequest;                  /* found when it is first needed: it is written in Ruby */

/* As its initialize does. */
VALUE http1_request_new(VALUE http1, VALUE head) {
  if (!cRequest) {
    VALUE klass = rb_const_get(cHTTP1, rb_intern("Request"));
    rb_gc_register_mark_object(klass);
    cRequest = klass;
  }
  VALUE request = rb_obj_alloc(cRequest);
  rb_ivar_set(request, id_http1, http1);
  rb_ivar_set(request, id_head, head);
  rb_ivar_set(request, id_state, sym_idle);
  return request;
}

static VALUE literal(const char *text) {
  VALUE string = rb_enc_interned_str_cstr(text, rb_utf8_encoding());

  rb_gc_register_mark_object(string);
  return string;
}

static VALUE env_key(const char *name) {
  bool bare = strcmp(name, "content-length") == 0 || strcmp(name, "content-type") == 0;
  VALUE key = folded(name, strlen(name), bare ? "" : "HTTP_", env_letter);

  rb_gc_register_mark_object(key);
  return key;
}

static void make_literals(void) {
  for (int i = 1; i < HTTP1_VERBS; i++) verbs[i] = literal(http1_verbs[i]);
  for (int i = 1; i < HTTP1_NAMES; i++) {
    names[i] = literal(http1_names[i]);
    keys[i] = env_key(http1_names[i]);
  }
  http_1_0 = literal("HTTP/1.0");
  no_host = literal("");
  version_1_0 = literal("1.0");
  version_1_1 = literal("1.1");
  key_method = literal("REQUEST_METHOD");
  key_path = literal("PATH_INFO");
  key_uri = literal("REQUEST_URI");
  key_query = literal("QUERY_STRING");
  key_protocol = literal("SERVER_PROTOCOL");
  key_server_name = literal("SERVER_NAME");
  key_server_port = literal("SERVER_PORT");
  localhost = literal("localhost");
  key_address = literal("REMOTE_ADDR");
  key_port = literal("REMOTE_PORT");
  key_hijack = literal("rack.hijack");
  key_finished = literal("rack.response_finished");
  key_request = literal("polyphony.request");
}

void Init_http1_head(void) {
  make_literals();
  id_http1 = rb_intern("@http1");
  id_head = rb_intern("@head");
  id_state = rb_intern("@state");
  id_connection = rb_intern("@connection");
  id_app_data = rb_intern("@app_data");
  sym_idle = ID2SYM(rb_intern("idle"));
  cHead = rb_define_class_under(cHTTP1, "Head", rb_cObject);
  rb_gc_register_mark_object(cHead);
  rb_undef_alloc_func(cHead);
  rb_define_method(cHead, "verb", Head_verb, 0);
  rb_define_method(cHead, "target", Head_target, 0);
  rb_define_method(cHead, "path", Head_path, 0);
  rb_define_method(cHead, "query", Head_query, 0);
  rb_define_method(cHead, "version", Head_version, 0);
  rb_define_method(cHead, "host", Head_host, 0);
  rb_define_method(cHead, "asterisk?", Head_asterisk_p, 0);
  rb_define_method(cHead, "upgrade?", Head_upgrade_p, 0);
  rb_define_method(cHead, "plain?", Head_plain_p, 0);
  rb_define_method(cHead, "headers", Head_headers, 0);
  rb_define_method(cHead, "[]", Head_field, 1);
  rb_define_method(cHead, "make_env", Head_make_env, 2);
  rb_define_method(cHead, "env", Head_env, 0);
  rb_define_method(cHead, "call", Head_call, 0);
  rb_define_singleton_method(mHTTP, "__env", HTTP_s_env, 2);
  rb_define_singleton_method(mHTTP, "__http2_env", HTTP_s_http2_env, 5);
  rb_define_method(cHead, "status", Head_status, 0);
  rb_define_method(cHead, "sent", Head_sent, 0);
}
