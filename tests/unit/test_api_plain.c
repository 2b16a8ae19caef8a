/* test_api_plain.c: tokens, embeddings and models: requests and answers, byte for byte. */
#include "api_fixture.h"

#include "serve/api_plain.h"

typedef zp_status (*plain_reader)(struct plain_request *r, const char *body, size_t size,
                                  const struct api_limits *limits, struct apifault *fault);

static struct plain_request take(plain_reader read, const char *text)
{
    struct plain_request r;
    struct apifault fault = { 0 };
    char *body = api_json(text);
    if (read(&r, body, strlen(body), &api_no_limits, &fault) != ZP_OK)
        fail_msg("%s\n refused: %s", text, fault.message);
    free(body);
    return r;
}

static void refuse(plain_reader read, const char *text, const char *param, const char *message)
{
    struct plain_request r;
    struct apifault fault = { 0 };
    char *body = api_json(text), *want = api_json(message);
    assert_int_not_equal(read(&r, body, strlen(body), &api_no_limits, &fault), ZP_OK);
    plain_free(&r);
    assert_int_equal(fault.status, 400);
    assert_string_equal(fault.message, want);
    assert_string_equal(fault.param, param);
    free(body);
    free(want);
}

static void test_requests(void **state)
{
    struct plain_request r;
    (void)state;
    r = take(plain_read_embeddings, "{`input`:[`a`,[1,2]],`model`:`m`,`user`:`u`,"
                                    "`encoding_format`:`base64`,`dimensions`:8}");
    assert_string_equal(r.model, "m");
    assert_string_equal(r.user, "u");
    assert_int_equal(r.encoding, PLAIN_BASE64);
    assert_int_equal(r.dimensions, 8);
    assert_int_equal(r.n_prompts, 2);
    assert_string_equal(r.prompts[0].text, "a");
    assert_int_equal(r.prompts[1].ids[1], 2);
    assert_true(r.pooling == ZP_POOL_DEFAULT && !r.raw && r.mode == -1);
    plain_free(&r);
    r = take(plain_read_embeddings, "{`content`:`a`,`pooling`:`cls`,`embd_normalize`:-1,"
                                    "`position_mode`:`half`,`dimensions`:null}");
    assert_string_equal(r.prompts[0].text, "a");
    assert_true(r.pooling == ZP_POOL_FIRST && r.raw && r.mode == ZP_MODE_HALF);
    assert_int_equal(r.dimensions, 0);
    plain_free(&r);
    r = take(plain_read_tokenize, "{`content`:`a b`}");
    assert_string_equal(r.prompts[0].text, "a b");
    assert_true(r.parse_special && !r.add_special && !r.with_pieces);
    plain_free(&r);
    r = take(plain_read_tokenize, "{`content`:``,`add_special`:true,`parse_special`:false,"
                                  "`with_pieces`:true}");
    assert_true(!r.parse_special && r.add_special && r.with_pieces);
    plain_free(&r);
    r = take(plain_read_detokenize, "{`tokens`:[5,6]}");
    assert_int_equal(r.prompts[0].n_ids, 2);
    plain_free(&r);
    r = take(plain_read_detokenize, "{`tokens`:[]}");
    assert_int_equal(r.n_prompts, 0);
    plain_free(&r);
}

static void test_what_is_refused(void **state)
{
    (void)state;
    refuse(plain_read_embeddings, "{}", "input",
           "'input': expected a text or a list of token ids, found nothing");
    refuse(plain_read_embeddings, "{`input`:`x`,`encoding_format`:`hex`}", "encoding_format",
           "'encoding_format': expected one of `float`, `base64`, found `hex`");
    refuse(plain_read_embeddings, "{`input`:``}", "input",
           "'input': expected a text that is not empty");
    refuse(plain_read_embeddings, "{`input`:[`a`,``]}", "input[1]",
           "'input[1]': expected a text that is not empty");
    refuse(plain_read_embeddings, "{`input`:[]}", "input",
           "'input': expected a text or a list of token ids, found a list");
    refuse(plain_read_embeddings, "{`input`:[[1],[]]}", "input[1]",
           "'input[1]': expected a text or a list of token ids, found a list");
    refuse(plain_read_embeddings, "{`input`:`x`,`embd_normalize`:1}", "embd_normalize",
           "'embd_normalize': expected 2 (length 1) or -1 (as it is), found 1");
    refuse(plain_read_tokenize, "{`content`:[1]}", "content",
           "'content': expected a text, found a list");
    refuse(plain_read_tokenize, "{`content`:[`a`]}", "content",
           "'content': expected a text, found a list");
    refuse(plain_read_detokenize, "{`tokens`:`a`}", "tokens",
           "'tokens': expected a list of token ids, found `a`");
    refuse(plain_read_detokenize, "{`tokens`:[[1],[2]]}", "tokens",
           "'tokens': expected a list of token ids, found a list");
    refuse(plain_read_detokenize, "{`tokens`:[1,-2]}", "tokens[1]",
           "'tokens[1]': expected a token id from 0 to 2147483647, found -2");
}

/* As many texts as OpenAI takes, beyond what completions may have. */
static void test_long_lists_of_texts(void **state)
{
    struct buffer body = buffer_with_max(MEM_META, 1 << 20);
    (void)state;
    for (size_t n = PLAIN_MOST_INPUTS; n <= PLAIN_MOST_INPUTS + 1; n++) {
        struct plain_request r;
        struct apifault fault = { 0 };
        buffer_clear(&body);
        GOLDEN_OK(buffer_append(&body, "{\"input\":[\"x\"", 13, err));
        for (size_t i = 1; i < n; i++) GOLDEN_OK(buffer_append(&body, ",\"x\"", 4, err));
        GOLDEN_OK(buffer_append(&body, "]}", 2, err));
        zp_status status = plain_read_embeddings(&r, (const char *)body.data, body.size,
                                                 &api_no_limits, &fault);
        assert_int_equal(status == ZP_OK, n == PLAIN_MOST_INPUTS);
        assert_int_equal(r.n_prompts, n);
        plain_free(&r);
    }
    buffer_free(&body);
}

/* Every field with every type of value: `taken` are the letters of api_samples. */
static void test_every_field_with_every_type(void **state)
{
    static const struct {
        plain_reader read;
        const char *base, *name, *taken;
    } cases[] = {
        { plain_read_embeddings, NULL, "input", "sl" },
        { plain_read_embeddings, "`input`:`x`,", "model", "nse" },
        { plain_read_embeddings, "`input`:`x`,", "user", "nse" },
        { plain_read_embeddings, "`input`:`x`,", "encoding_format", "n" },
        { plain_read_embeddings, "`input`:`x`,", "dimensions", "ni" },
        { plain_read_embeddings, "`input`:`x`,", "pooling", "n" },
        { plain_read_embeddings, "`input`:`x`,", "position_mode", "n" },
        { plain_read_embeddings, "`input`:`x`,", "embd_normalize", "n" },
        { plain_read_tokenize, NULL, "content", "se" },
        { plain_read_tokenize, "`content`:`x`,", "model", "nse" },
        { plain_read_tokenize, "`content`:`x`,", "add_special", "ntf" },
        { plain_read_tokenize, "`content`:`x`,", "parse_special", "ntf" },
        { plain_read_tokenize, "`content`:`x`,", "with_pieces", "ntf" },
        { plain_read_detokenize, NULL, "tokens", "a" },
        { plain_read_detokenize, "`tokens`:[1],", "model", "nse" },
    };
    (void)state;
    for (size_t i = 0; i < ZP_COUNT(cases); i++)
        for (size_t v = 0; v < ZP_COUNT(api_samples); v++) {
            char text[256];
            struct plain_request r;
            struct apifault fault = { 0 };
            snprintf(text, sizeof text, "{%s`%s`:%s}", cases[i].base ? cases[i].base : "",
                     cases[i].name, api_samples[v].json);
            char *body = api_json(text);
            bool right = strchr(cases[i].taken, api_samples[v].letter) != NULL;
            zp_status status = cases[i].read(&r, body, strlen(body), &api_no_limits, &fault);
            if ((status == ZP_OK) != right) fail_msg("%s: %s", text, fault.message);
            if (!right) api_fault_names(&fault, cases[i].name);
            plain_free(&r);
            free(body);
        }
}

static void test_embeddings(void **state)
{
    static const float rows[] = { 0.5f, -1, 0, 1e-10f, 2, 3 };
    /* little-endian floats: Python's base64.b64encode(struct.pack("<2f", 0.5, -1)), and so on */
    static const char *const texts[] = { "`AAAAPw==`", "`AAAAPwAAgL8=`", "`AAAAPwAAgL8AAAAA`" };
    const struct api_usage usage = { .n_prompt = 7, .layer_zeroed = 3 };
    struct plain_vectors v = { .model = "m", .rows = rows, .n = 2, .width = 3, .usage = &usage };
    struct buffer out = buffer_with_max(MEM_META, 1 << 20);
    (void)state;
    GOLDEN_OK(plain_write_embeddings(&v, &out, err));
    api_text_is(&out, "{`object`:`list`,`data`:[{`object`:`embedding`,`index`:0,`embedding`:"
                      "[0.5,-1.0,0.0]},{`object`:`embedding`,`index`:1,`embedding`:"
                      "[1.00000001e-10,2.0,3.0]}],`model`:`m`,`usage`:{`prompt_tokens`:7,"
                      "`total_tokens`:7,`layer_zeroed`:3}}");
    GOLDEN_OK(plain_write_embedding_list(&v, &out, err));
    api_text_is(&out, "[{`index`:0,`embedding`:[[0.5,-1.0,0.0]]},{`index`:1,`embedding`:"
                      "[[1.00000001e-10,2.0,3.0]]}]");
    v.encoding = PLAIN_BASE64;
    v.n = 1;
    for (v.width = 1; v.width <= 3; v.width++) {
        char want[256];
        snprintf(want, sizeof want,
                 "{`object`:`list`,`data`:[{`object`:`embedding`,`index`:0,`embedding`:%s}],"
                 "`model`:`m`,`usage`:{`prompt_tokens`:7,`total_tokens`:7,`layer_zeroed`:3}}",
                 texts[v.width - 1]);
        GOLDEN_OK(plain_write_embeddings(&v, &out, err));
        api_text_is(&out, want);
    }
    buffer_free(&out);
}

static void test_tokens_and_texts(void **state)
{
    static const int32_t ids[] = { 5, 6 };
    static const char *const pieces[] = { "Hi", "\xf0\x9f" };
    static const size_t sizes[] = { 2, 2 };
    struct buffer out = buffer_with_max(MEM_META, 1 << 20);
    (void)state;
    GOLDEN_OK(plain_write_tokens(ids, 2, NULL, NULL, &out, err));
    api_text_is(&out, "{`tokens`:[5,6]}");
    GOLDEN_OK(plain_write_tokens(ids, 2, pieces, sizes, &out, err));
    api_text_is(&out, "{`tokens`:[{`id`:5,`piece`:`Hi`},{`id`:6,`piece`:[240,159]}]}");
    GOLDEN_OK(plain_write_tokens(NULL, 0, NULL, NULL, &out, err));
    api_text_is(&out, "{`tokens`:[]}");
    GOLDEN_OK(plain_write_text("content", "a\"\n", 3, &out, err));
    api_text_is(&out, "{`content`:`a\\`\\n`}");
    GOLDEN_OK(plain_write_text("prompt", NULL, 0, &out, err));
    api_text_is(&out, "{`prompt`:``}");
    buffer_free(&out);
}

static void test_models(void **state)
{
    static const struct plain_model models[] = {
        { "a", 1700000000, 4096, 2048, 49152, 134515008, 144811136, 30, 12 },
        { .id = "b" },
    };
    static const char one[] =
        "{`id`:`a`,`object`:`model`,`created`:1700000000,`owned_by`:`zerope`,`meta`:{`n_ctx`:4096,"
        "`n_ctx_train`:2048,`n_vocab`:49152,`n_params`:134515008,`size`:144811136,`n_layer`:30,"
        "`layer_zeroed`:12}}";
    char expected[1024];
    struct buffer out = buffer_with_max(MEM_META, 1 << 20);
    (void)state;
    GOLDEN_OK(plain_write_model(models, &out, err));
    api_text_is(&out, one);
    GOLDEN_OK(plain_write_models(models, 2, &out, err));
    snprintf(
        expected, sizeof expected,
        "{`object`:`list`,`data`:[%s,{`id`:`b`,`object`:`model`,`created`:0,`owned_by`:`zerope`,"
        "`meta`:{`n_ctx`:0,`n_ctx_train`:0,`n_vocab`:0,`n_params`:0,`size`:0,`n_layer`:0,"
        "`layer_zeroed`:0}}]}",
        one);
    api_text_is(&out, expected);
    buffer_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests),
        cmocka_unit_test(test_what_is_refused),
        cmocka_unit_test(test_long_lists_of_texts),
        cmocka_unit_test(test_every_field_with_every_type),
        cmocka_unit_test(test_embeddings),
        cmocka_unit_test(test_tokens_and_texts),
        cmocka_unit_test(test_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
