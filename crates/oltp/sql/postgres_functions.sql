-- The five transactions of TPC-C, clauses 2.4 to 2.8, as functions: one round trip each. A call is a
-- transaction. Locks are taken in one order: customers, districts, warehouses; stock last.
DROP FUNCTION IF EXISTS ashlar_new_order, ashlar_payment, ashlar_order_status, ashlar_delivery,
    ashlar_stock_level;

-- in_repeats: for each line, how many lines before it name the same stock. An UPDATE changes a row
-- once, so lines that repeat a stock wait for the next round.
CREATE FUNCTION ashlar_new_order(
    in_w integer, in_d integer, in_c integer, in_items integer[], in_supplies integer[],
    in_quantities integer[], in_repeats integer[],
    OUT out_order integer, OUT out_last text, OUT out_credit text, OUT out_discount numeric,
    OUT out_w_tax numeric, OUT out_d_tax numeric, OUT out_total numeric, OUT out_names text[],
    OUT out_stock integer[], OUT out_brands text[], OUT out_prices numeric[], OUT out_amounts numeric[]
) LANGUAGE plpgsql AS $$
DECLARE
    round integer := 0;
    found_lines integer := 0;
    part record;
BEGIN
    SELECT c_last, c_credit, c_discount, w_tax
        INTO out_last, out_credit, out_discount, out_w_tax
        FROM customer, warehouse
        WHERE w_id = in_w AND c_w_id = in_w AND c_d_id = in_d AND c_id = in_c;
    UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = in_w AND d_id = in_d
        RETURNING d_next_o_id - 1, d_tax INTO out_order, out_d_tax;
    INSERT INTO orders VALUES (out_order, in_d, in_w, in_c, localtimestamp, NULL,
        cardinality(in_items), (in_w = ALL (in_supplies))::integer);
    INSERT INTO new_order VALUES (out_order, in_d, in_w);
    out_total := 0;
    LOOP
        WITH taken AS (
            UPDATE stock SET
                s_quantity = s_quantity - quantity
                    + CASE WHEN s_quantity - quantity >= 10 THEN 0 ELSE 91 END,
                s_ytd = s_ytd + quantity,
                s_order_cnt = s_order_cnt + 1,
                s_remote_cnt = s_remote_cnt + (supply <> in_w)::integer
            FROM unnest(in_items, in_supplies, in_quantities, in_repeats) WITH ORDINALITY
                AS line (item, supply, quantity, repeats, number)
            WHERE repeats = round AND s_w_id = supply AND s_i_id = item
            RETURNING number, item, supply, quantity, s_quantity, s_data,
                CASE in_d WHEN 1 THEN s_dist_01 WHEN 2 THEN s_dist_02 WHEN 3 THEN s_dist_03
                    WHEN 4 THEN s_dist_04 WHEN 5 THEN s_dist_05 WHEN 6 THEN s_dist_06
                    WHEN 7 THEN s_dist_07 WHEN 8 THEN s_dist_08 WHEN 9 THEN s_dist_09
                    ELSE s_dist_10 END AS info
        ), priced AS (
            SELECT taken.*, i_name, i_price, i_price * quantity AS amount,
                CASE WHEN i_data LIKE '%ORIGINAL%' AND s_data LIKE '%ORIGINAL%'
                    THEN 'B' ELSE 'G' END AS brand
            FROM taken JOIN item ON i_id = item
        ), kept AS (
            INSERT INTO order_line SELECT out_order, in_d, in_w, number, item, supply, NULL,
                quantity, amount, info FROM priced
        )
        SELECT count(*) AS lines, sum(amount) AS total, array_agg(i_name::text) AS names,
            array_agg(s_quantity) AS stock, array_agg(brand) AS brands,
            array_agg(i_price) AS prices, array_agg(amount) AS amounts
            INTO part FROM priced;
        EXIT WHEN part.lines = 0;
        found_lines := found_lines + part.lines;
        out_total := out_total + part.total;
        out_names := out_names || part.names;
        out_stock := out_stock || part.stock;
        out_brands := out_brands || part.brands;
        out_prices := out_prices || part.prices;
        out_amounts := out_amounts || part.amounts;
        EXIT WHEN found_lines = cardinality(in_items);
        round := round + 1;
    END LOOP;
    IF found_lines < cardinality(in_items) THEN
        RAISE EXCEPTION 'Item number is not valid' USING ERRCODE = 'TPCRB';
    END IF;
    out_total := out_total * (1 - out_discount) * (1 + out_w_tax + out_d_tax);
END $$;

-- in_last is null if the customer is given by in_c.
CREATE FUNCTION ashlar_payment(
    in_w integer, in_d integer, in_c_w integer, in_c_d integer, in_c integer, in_last text,
    in_amount numeric,
    OUT out_c integer, OUT out_warehouse text[], OUT out_district text[], OUT out_customer text[],
    OUT out_since timestamp, OUT out_limit numeric, OUT out_discount numeric, OUT out_balance numeric
) LANGUAGE plpgsql AS $$
DECLARE
    named integer[];
BEGIN
    out_c := in_c;
    IF in_last IS NOT NULL THEN
        SELECT array_agg(c_id ORDER BY c_first) INTO named FROM customer
            WHERE c_w_id = in_c_w AND c_d_id = in_c_d AND c_last = in_last;
        out_c := named[(cardinality(named) + 1) / 2];
        IF out_c IS NULL THEN
            RETURN;
        END IF;
    END IF;
    UPDATE customer SET c_balance = c_balance - in_amount,
        c_ytd_payment = c_ytd_payment + in_amount, c_payment_cnt = c_payment_cnt + 1,
        c_data = CASE WHEN c_credit = 'BC' THEN left(concat(out_c, ' ', in_c_d, ' ', in_c_w, ' ',
            in_d, ' ', in_w, ' ', in_amount, '|', c_data), 500) ELSE c_data END
        WHERE c_w_id = in_c_w AND c_d_id = in_c_d AND c_id = out_c
        RETURNING ARRAY[c_first, c_middle, c_last, c_street_1, c_street_2, c_city, c_state, c_zip,
            c_phone, c_credit, CASE WHEN c_credit = 'BC' THEN left(c_data, 200) END],
            c_since, c_credit_lim, c_discount, c_balance
        INTO out_customer, out_since, out_limit, out_discount, out_balance;
    UPDATE district SET d_ytd = d_ytd + in_amount WHERE d_w_id = in_w AND d_id = in_d
        RETURNING ARRAY[d_name, d_street_1, d_street_2, d_city, d_state, d_zip] INTO out_district;
    UPDATE warehouse SET w_ytd = w_ytd + in_amount WHERE w_id = in_w
        RETURNING ARRAY[w_name, w_street_1, w_street_2, w_city, w_state, w_zip] INTO out_warehouse;
    INSERT INTO history VALUES (out_c, in_c_d, in_c_w, in_d, in_w, localtimestamp, in_amount,
        concat(out_warehouse[1], '    ', out_district[1]));
END $$;

CREATE FUNCTION ashlar_order_status(
    in_w integer, in_d integer, in_c integer, in_last text,
    OUT out_c integer, OUT out_name text[], OUT out_balance numeric, OUT out_order integer,
    OUT out_entry timestamp, OUT out_carrier integer, OUT out_items integer[],
    OUT out_supplies integer[], OUT out_quantities integer[], OUT out_amounts numeric[],
    OUT out_deliveries timestamp[]
) LANGUAGE plpgsql AS $$
DECLARE
    named integer[];
BEGIN
    out_c := in_c;
    IF in_last IS NOT NULL THEN
        SELECT array_agg(c_id ORDER BY c_first) INTO named FROM customer
            WHERE c_w_id = in_w AND c_d_id = in_d AND c_last = in_last;
        out_c := named[(cardinality(named) + 1) / 2];
    END IF;
    SELECT ARRAY[c_first, c_middle, c_last], c_balance INTO out_name, out_balance FROM customer
        WHERE c_w_id = in_w AND c_d_id = in_d AND c_id = out_c;
    SELECT o_id, o_entry_d, o_carrier_id INTO out_order, out_entry, out_carrier FROM orders
        WHERE o_w_id = in_w AND o_d_id = in_d AND o_c_id = out_c ORDER BY o_id DESC LIMIT 1;
    SELECT array_agg(ol_i_id), array_agg(ol_supply_w_id), array_agg(ol_quantity),
        array_agg(ol_amount), array_agg(ol_delivery_d)
        INTO out_items, out_supplies, out_quantities, out_amounts, out_deliveries FROM order_line
        WHERE ol_w_id = in_w AND ol_d_id = in_d AND ol_o_id = out_order;
END $$;

-- Gives the orders that were delivered, by district; null where there was none.
CREATE FUNCTION ashlar_delivery(in_w integer, in_carrier integer, OUT out_orders integer[])
LANGUAGE plpgsql AS $$
DECLARE
    delivered integer;
    paid_by integer;
    amount numeric;
BEGIN
    FOR district IN 1..10 LOOP
        LOOP
            SELECT no_o_id INTO delivered FROM new_order
                WHERE no_w_id = in_w AND no_d_id = district ORDER BY no_o_id LIMIT 1;
            EXIT WHEN NOT FOUND;
            DELETE FROM new_order
                WHERE no_w_id = in_w AND no_d_id = district AND no_o_id = delivered;
            -- Otherwise another delivery was quicker: look for the next.
            EXIT WHEN FOUND;
        END LOOP;
        out_orders[district] := delivered;
        CONTINUE WHEN delivered IS NULL;
        UPDATE orders SET o_carrier_id = in_carrier
            WHERE o_w_id = in_w AND o_d_id = district AND o_id = delivered
            RETURNING o_c_id INTO paid_by;
        WITH lines AS (
            UPDATE order_line SET ol_delivery_d = localtimestamp
                WHERE ol_w_id = in_w AND ol_d_id = district AND ol_o_id = delivered
                RETURNING ol_amount
        )
        SELECT sum(ol_amount) INTO amount FROM lines;
        UPDATE customer SET c_balance = c_balance + amount, c_delivery_cnt = c_delivery_cnt + 1
            WHERE c_w_id = in_w AND c_d_id = district AND c_id = paid_by;
    END LOOP;
END $$;

CREATE FUNCTION ashlar_stock_level(
    in_w integer, in_d integer, in_threshold integer, OUT out_low integer
) LANGUAGE plpgsql AS $$
DECLARE
    next integer;
BEGIN
    SELECT d_next_o_id INTO next FROM district WHERE d_w_id = in_w AND d_id = in_d;
    SELECT count(DISTINCT s_i_id) INTO out_low FROM order_line
        JOIN stock ON s_w_id = ol_w_id AND s_i_id = ol_i_id
        WHERE ol_w_id = in_w AND ol_d_id = in_d AND ol_o_id >= next - 20 AND ol_o_id < next
        AND s_quantity < in_threshold;
END $$;
